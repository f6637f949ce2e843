"""Compile all kernels once, ahead of the first run.

`make venv` does this.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from scaffe import log
from scaffe.atomic_files import write_whole
from scaffe.cli import main as cli
from scaffe.data.convert.mnist import convert_mnist
from scaffe.data.records.idx import write_idx
from scaffe.errors import UserError
from scaffe.flags import Flags

GROUP = "This machine"
NET = """
layer {{ name: "d" type: "Data" top: "data" top: "label"
        data_param {{ source: "{folder}/db" batch_size: 4 backend: LMDB }}
        transform_param {{ scale: 0.004 crop_size: 12 mirror: {mirror} {mean} }} }}
layer {{ name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param {{ num_output: 4 kernel_size: 3 }} }}
layer {{ name: "b" type: "BatchNorm" bottom: "c" top: "c" }}
layer {{ name: "s" type: "Scale" bottom: "c" top: "c" scale_param {{ bias_term: true }} }}
layer {{ name: "r" type: "ReLU" bottom: "c" top: "c" }}
layer {{ name: "n" type: "LRN" bottom: "c" top: "n" lrn_param {{ local_size: 3 }} }}
layer {{ name: "p" type: "Pooling" bottom: "n" top: "p" pooling_param {{ pool: AVE kernel_size: 3 stride: 2 pad: 1 }} }}
layer {{ name: "b2" type: "BatchNorm" bottom: "p" top: "p" }}
layer {{ name: "s2" type: "Scale" bottom: "p" top: "p" scale_param {{ bias_term: true }} }}
layer {{ name: "i" type: "InnerProduct" bottom: "p" top: "i" inner_product_param {{ num_output: 10
        weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "r2" type: "ReLU" bottom: "i" top: "i" relu_param {{ negative_slope: 0.1 }} }}
layer {{ name: "o" type: "Dropout" bottom: "i" top: "i" }}
layer {{ name: "l" type: "SoftmaxWithLoss" bottom: "i" bottom: "label" top: "l" }}
"""
SOLVER = """net: "{folder}/net.prototxt" base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed" max_iter: 2
test_iter: 1 test_interval: 1 random_seed: 1 snapshot_prefix: "{folder}/s" snapshot_after_train: false
regularization_type: "{decay}" """
RUNS = (("false", "", "L2"), ("true", "mean_value: 3", "L1"))


def main(argv: list[str]) -> int:
    """Train two tiny nets for a moment. Returns the exit code."""
    Flags("warm", __doc__ or "").parse(argv)
    log.silence(True)
    try:
        code = _train_both()
    finally:
        log.silence(False)
    if not code:
        print("kernels are compiled")
    return code


def _train_both() -> int:
    with tempfile.TemporaryDirectory() as folder:
        _make_data(Path(folder))
        for mirror, mean, decay in RUNS:
            net = NET.format(folder=folder, mirror=mirror, mean=mean)
            write_whole(f"{folder}/net.prototxt", net.encode(), UserError)
            write_whole(f"{folder}/solver.prototxt", SOLVER.format(folder=folder, decay=decay).encode(), UserError)
            code = cli.main(["train", "-solver", f"{folder}/solver.prototxt"])
            if code:
                return code
    return 0


def _make_data(folder: Path) -> None:
    images = np.arange(16 * 16 * 16, dtype=np.uint8).reshape(16, 16, 16)
    write_idx(folder / "images", images)
    write_idx(folder / "labels", np.arange(16, dtype=np.uint8) % 10)
    convert_mnist(str(folder / "images"), str(folder / "labels"), str(folder / "db"), False)
