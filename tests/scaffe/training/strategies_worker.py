"""One rank of the strategies' test: trains the same net under each strategy and prints what came out (rank 0)."""

import hashlib
import json
import sys
from argparse import Namespace

import numpy as np
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver

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
SOLVER = """base_lr: 0.05 momentum: 0.9 weight_decay: 0.001 lr_policy: "inv" gamma: 0.01 power: 0.75 max_iter: 50
iter_size: 2 clip_gradients: 3 random_seed: 7 snapshot_prefix: "none" """
RULE = 'momentum: 0 type: "AdaGrad" snapshot_diff: true'
ROOTED = [("sc-b", 0), *((name, bucket) for name in ("sc-ob", "sc-ob-naive", "sc-obr") for bucket in (0, 500))]
RUNS = [(strategy, algorithm, bucket) for algorithm in ("C", "CB-2") for strategy, bucket in ROOTED] + [
    ("sc-b", "mpi", 0), ("sc-rs", "auto", 0), ("sc-rs", "auto", "auto"), ("sc-rs", "R", 600),
    ("sc-obr", "auto", 10**6), ("auto", "auto", "auto"),
    *((strategy, "C:bf16", 500) for strategy in ("sc-b", "sc-ob", "sc-obr")), ("sc-rs", "R:fp16", 500)]


RULED = [("sc-b", "C", 0, RULE), ("sc-rs", "R", 600, RULE)]


def train(communicator, strategy, algorithm, bucket, rule=""):
    """Returns the parameters, the histories and the last steps of rank 0's snapshot."""
    param = text_format.Merge(rule, text_format.Parse(SOLVER, caffe_pb2.SolverParameter()))
    text_format.Parse(NET, param.net_param)
    reduce, _, wire = algorithm.partition(":")
    options = Namespace(strategy=strategy, reduce=reduce, wire=wire, bucket=str(bucket), scal="strong", threads=1,
                        readers=1, level=0, stage="", gpu="", allow_nan=False, skip_bad_records=0)
    solver = build_solver(communicator, param, options)
    solver.solve()
    return solver.net.params.data.copy(), np.concatenate(solver.strategy.histories()), solver.net.params.diff.copy()


def main():
    communicator = Communicator.world()
    install_excepthook(communicator)
    log.silence(True)
    results = []
    for run in RUNS + RULED:
        weights, histories, steps = train(communicator, *run)
        everywhere = communicator.allgather_objects(hashlib.sha256(weights.tobytes()).hexdigest())
        results.append({"run": run, "same": len(set(everywhere)) == 1,
                        "hash": everywhere[0] + hashlib.sha256(histories.tobytes()).hexdigest(),
                        "weights": weights[:2000].tolist(), "histories": histories[:2000].tolist(),
                        "steps": steps[:2000].tolist()})
    if communicator.rank == 0:
        json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
