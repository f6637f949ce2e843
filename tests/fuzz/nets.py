"""A small net and its solver, built once, into which damaged weights and states are loaded."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import scaffe

NET = """name: "small" force_backward: true
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "norm" type: "BatchNorm" bottom: "c" top: "n" }
layer { name: "drop" type: "Dropout" bottom: "n" top: "d" }
layer { name: "ip" type: "InnerProduct" bottom: "d" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "l" }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: 9 random_seed: 1'


@functools.cache
def solver() -> Any:
    """The solver; its net is ``solver().net``."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "net.prototxt").write_text(NET)
        (Path(folder) / "solver.prototxt").write_text(SOLVER)
        return scaffe.SGDSolver(f"{folder}/solver.prototxt")


def snapshots(folder: Path, ending: str) -> tuple[Path, Path]:
    """Weights and state of the solver after two iterations, in a folder; the ending is "" or ".h5"."""
    made = solver()
    made.param.snapshot_prefix = str(folder / "run")
    made.param.snapshot_format = 0 if ending else 1
    made.step(2)
    made.snapshot()
    name = f"run_iter_{made.iter}"
    return folder / f"{name}.caffemodel{ending}", folder / f"{name}.solverstate{ending}"
