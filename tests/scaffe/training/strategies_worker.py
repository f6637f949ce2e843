"""One rank of the strategies' test: trains the same net under each strategy; rank 0 writes what came out.

    mpirun -np N python tests/scaffe/training/strategies_worker.py FOLDER

It also leaves a state there, and tries to go on from every state that lies there. One rank does only that.
"""

import hashlib
import pickle
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.files import read_state
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import restore_checkpoint, save_checkpoint

NET = """
layer { name: "in" type: "DummyData" top: "a" top: "b" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 dim: 6 dim: 6 } shape { dim: 4 dim: 3 dim: 6 dim: 6 } shape { dim: 4 }
  data_filler { type: "gaussian" std: 1 } data_filler { type: "uniform" min: -1 max: 1 }
  data_filler { type: "constant" value: 2 } } }
layer { name: "frozen" type: "Convolution" bottom: "a" top: "a1" param { lr_mult: 0 } param { lr_mult: 0 }
  convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "c1" type: "Convolution" bottom: "a1" top: "c1" param { name: "shared_w" }
  param { name: "shared_b" lr_mult: 2 }
  convolution_param { num_output: 5 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "c2" type: "Convolution" bottom: "b" top: "c2" param { name: "shared_w" } param { name: "shared_b" }
  convolution_param { num_output: 5 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "c1" top: "c1" }
layer { name: "scale" type: "Scale" bottom: "c1" top: "c1" scale_param { bias_term: true } }
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "r2" type: "ReLU" bottom: "c2" top: "c2" relu_param { negative_slope: 0.1 } }
layer { name: "drop" type: "Dropout" bottom: "c2" top: "c2" }
layer { name: "ip1" type: "InnerProduct" bottom: "c1" top: "ip1" inner_product_param { num_output: 37
  weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "c2" top: "ip2" inner_product_param { num_output: 4
  weight_filler { type: "xavier" } } }
layer { name: "l1" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "l1" loss_weight: 0.3 }
layer { name: "l2" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "l2" }
"""
SOLVER = """base_lr: 0.05 momentum: 0.9 weight_decay: 0.001 lr_policy: "inv" gamma: 0.01 power: 0.75 max_iter: 12
iter_size: 2 clip_gradients: 3 random_seed: 7 snapshot_prefix: "none" """
RULE = 'momentum: 0 type: "AdaGrad" snapshot_diff: true'
BUCKETED = [("sc-b", 0), *((name, bucket) for name in ("sc-ob", "sc-ob-naive", "sc-obr") for bucket in (0, 500))]
ROOTED = [(strategy, algorithm, bucket) for algorithm in ("C", "CB-2") for strategy, bucket in BUCKETED]
OTHERS = [("sc-b", "mpi", 0), ("sc-rs", "auto", 0), ("sc-rs", "auto", "auto"), ("sc-rs", "R", 600),
          ("sc-obr", "auto", 10**6), ("auto", "auto", "auto")]
HALVES = [*((strategy, "C:bf16", 500) for strategy in ("sc-b", "sc-ob", "sc-obr")), ("sc-rs", "R:fp16", 500)]
RULED = [("sc-b", "C", 0, RULE), ("sc-rs", "R", 600, RULE)]


ADAM = 'type: "Adam" max_iter: 3 snapshot_prefix: "{}" '


def build(communicator, strategy, algorithm, bucket, rule=""):
    """A solver of the net above."""
    param = text_format.Merge(rule, text_format.Parse(SOLVER, caffe_pb2.SolverParameter()))
    text_format.Parse(NET, param.net_param)
    reduce, _, wire = algorithm.partition(":")
    options = Namespace(strategy=strategy, reduce=reduce, wire=wire, bucket=str(bucket), scal="strong", threads=1,
                        readers=1, level=0, stage="", gpu="", allow_nan=False, skip_bad_records=0)
    return build_solver(communicator, param, options)


def train(communicator, *run):
    """Train, and settle as a snapshot does.

    Returns:
        on rank 0 the parameters, the histories (one after the other) and the last steps; and on all ranks whether all
        ended with the same parameters, and the bytes of histories of each.
    """
    solver = build(communicator, *run)
    solver.solve()
    params = solver.net.params
    hashes = communicator.allgather_objects(hashlib.sha256(params.data.tobytes()).hexdigest())
    n_bytes = communicator.allgather_objects(sum(shard.n_bytes for shard in solver.updater.shards))
    return {"weights": params.data.copy(), "histories": np.concatenate([*solver.strategy.state.histories(), []]),
            "steps": params.diff.copy(), "same": len(set(hashes)) == 1, "n_bytes": n_bytes,
            "n_buckets": len(solver.strategy.buckets.all)}


def save(communicator, folder):
    """Leave a state of Adam, which has two histories, after some iterations in which every rank updates a part."""
    solver = build(communicator, "sc-rs", "auto", 600, ADAM.format(f"{folder}/ranks_{communicator.n_ranks}"))
    solver.solve()
    save_checkpoint(solver)
    communicator.barrier()


def restored(communicator, folder):
    """By state and strategy, on rank 0: whether the ranks together hold the state's histories, bit by bit."""
    found = {}
    for path in communicator.bcast_object(sorted(map(str, folder.glob("*.solverstate")))):
        for strategy in ("sc-rs", "sc-b"):
            solver = build(communicator, strategy, "auto", 0, ADAM.format(f"{folder}/again"))
            restore_checkpoint(solver, path)
            wholes, wanted = solver.strategy.state.histories(), read_state(path).history
            parts = [whole[place] for whole in wholes for place in solver.net.params.slices]
            found[Path(path).name, strategy] = len(parts) == len(wanted) and all(
                np.array_equal(part, array.reshape(-1)) for part, array in zip(parts, wanted)) and parts[0].any()
    return found


def main():
    communicator = Communicator.world()
    install_excepthook(communicator)
    log.silence(True)
    folder = Path(sys.argv[1])
    save(communicator, folder)
    if communicator.n_ranks == 1:
        return
    results = {run: train(communicator, *run) for run in (*ROOTED, *OTHERS, *HALVES, *RULED)}
    results["restored"] = restored(communicator, folder)
    if communicator.rank == 0:
        (folder / f"results_{communicator.n_ranks}").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main()
