"""One rank of the test of uneven shares: trains a small net many ways; rank 0 writes what came out, and one rank's.

    mpirun -np 3 python -m tests.scaffe.training.uneven_worker FOLDER
"""

import pickle
import sys
from argparse import Namespace
from pathlib import Path

import h5py
import numpy as np
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver, images_per_iteration
from scaffe.training.observers.display import Display
from scaffe.training.observers.test import Test
from scaffe.training.solver import Observer
from scaffe.training.strategies import WORKER, look_up

BATCH, N_ROWS, N_INPUTS, N_HIDDEN, N_CLASSES, IGNORED = 16, 80, 6, 8, 4, 3
NET = """
layer {{ name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param {{ source: "{list}"
  batch_size: {batch} }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param {{ num_output: 8
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param {{ num_output: 4
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "best" type: "ArgMax" bottom: "ip2" top: "best" include {{ phase: TRAIN }} }}
layer {{ name: "acc" type: "Accuracy" bottom: "ip2" bottom: "label" top: "acc" }}
{loss}
"""
MEAN = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }'
LOSSES = {
    "mean": MEAN, "ignored": MEAN.replace(" }", ' loss_param { ignore_label: 3 } }'),
    "none": MEAN.replace(" }", " loss_weight: 0.05 loss_param { normalization: NONE } }"),
    "both": MEAN + MEAN.replace('"loss"', '"more"').replace(
        " }", " loss_weight: 0.05 loss_param { normalization: NONE } }"),
    # a sum over images, by a layer that is no loss layer, and a mean by another
    "sums": MEAN + """
layer { name: "squares" type: "Power" bottom: "ip2" top: "squares" power_param { power: 2 } loss_weight: 0.01 }
layer { name: "size" type: "Reduction" bottom: "ip1" top: "size" reduction_param { operation: MEAN }
  loss_weight: 0.1 }"""}
SOLVER = """base_lr: 0.1 momentum: 0.9 weight_decay: 0.001 lr_policy: "fixed" max_iter: 5 iter_size: 2 display: 1
test_iter: 4 test_interval: 5 test_initialization: false random_seed: 4 snapshot_prefix: "none" """
ONCE = "momentum: 0 weight_decay: 0 max_iter: 1 test_interval: 1 "
PLATEAU = 'base_lr: 2 lr_policy: "plateau" gamma: 0.5 plateau_winsize: [1, 1, 1] '
IN_STEP = {"sc-b": ("sc-b", {}), "sc-ob": ("sc-ob", {}), "sc-obr": ("sc-obr", {}), "sc-rs": ("sc-rs", {}),
           "ssp": ("ssp", {}), "ssp with a server": ("ssp", {"servers": 1})}
RUNS = {  # name: (strategy, flags, more of the solver, loss)
    **{name: (*run, "clip_gradients: 0.7 ", "mean") for name, run in IN_STEP.items()},
    "plateau": ("sc-b", {}, PLATEAU, "mean"),
    "once": ("sc-b", {}, ONCE, "mean"), "once ssp": ("ssp", {"slack": 2.0}, ONCE, "mean"),
    "once downpour": ("downpour", {}, ONCE, "mean"), "once warm": ("downpour", {"warm_start": 1}, ONCE, "mean"),
    **{f"once {loss}": ("sc-b", {}, ONCE, loss) for loss in LOSSES if loss != "mean"},
}


def rows():
    """All images, float32 (N_ROWS, N_INPUTS), and their labels."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((N_ROWS, N_INPUTS)).astype(np.float32)
    return x, (x[:, :N_CLASSES] + 0.3 * rng.standard_normal((N_ROWS, N_CLASSES))).argmax(1).astype(np.float32)


def write_rows(folder):
    """The rows where the net reads them."""
    x, labels = rows()
    with h5py.File(folder / "rows.h5", "w") as file:
        file["data"], file["label"] = x, labels
    (folder / "list.txt").write_text(f"{folder / 'rows.h5'}\n")


class Seen(Observer):
    """Keeps what was displayed and tested."""

    def __init__(self):
        self.values = {"train": [], "test": []}

    def measured(self, solver, phase, values):
        """Keep the values."""
        self.values[phase].append(values)


def options_of(strategy, flags):
    """The flags of ``train``."""
    return Namespace(**{"strategy": strategy, "reduce": "auto", "wire": "", "bucket": "auto", "scal": "strong",
                        "threads": 1, "readers": 1, "level": 0, "stage": "", "gpu": "", "allow_nan": False,
                        "skip_bad_records": 0, "slack": 0.0, "servers": 0, "n_fetch": 1, "n_push": 1, "n_sync": 0,
                        "warm_start": 0} | flags)


def train(communicator, folder, strategy, flags, extra, loss):
    """Train one way.

    Returns:
        on worker 0 the weights before and after, what was displayed and tested, and the images of an iteration.
    """
    param = text_format.Merge(extra, text_format.Parse(SOLVER, caffe_pb2.SolverParameter()))
    text_format.Parse(NET.format(list=folder / "list.txt", batch=BATCH, loss=LOSSES[loss]), param.net_param)
    options = options_of(strategy, flags)
    kind = look_up(strategy, "auto", communicator)
    role = kind.roles.place(communicator, options)
    if role.kind != WORKER:
        kind.roles.serve(role, param, options)
        return None
    solver, seen = build_solver(role.ranks, param, options, role), Seen()
    solver.observers += [Display(), Test(), seen]
    before = weights_of(solver.net)
    solver.solve()
    found = {"before": before, "after": weights_of(solver.net), "images": images_per_iteration(solver, role.n_replicas)}
    solver.close()
    return found | seen.values


def weights_of(net):
    """Copies of the parameters."""
    return [param.blob.data.copy() for param in net.params.params]


def main(folder):
    """Run everything: on all ranks, and on one."""
    communicator = Communicator.world()
    install_excepthook(communicator)
    log.silence(True)
    results = {}
    for name, run in RUNS.items():
        results[name] = train(communicator, folder, *run)
        communicator.barrier()
    if communicator.rank == 0:
        alone = {name: train(Communicator.single(), folder, strategy, {}, extra, loss)
                 for name, (strategy, _, extra, loss) in RUNS.items()}
        (folder / "results").write_bytes(pickle.dumps((results, alone)))
    communicator.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
