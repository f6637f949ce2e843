"""scaffe: a Caffe-compatible trainer on an MPI collective runtime.

``import scaffe as caffe`` is Caffe's Python interface.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__version__ = "0.2.0"

# Read when numba is imported. Where colorama is installed, numba would swap sys.stdout whenever it compiles and end the
# output of every rank, which is a terminal behind mpirun, with escape sequences.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")

_HOMES = {  # the modules that define Caffe's names; imported on first use, so that importing this package stays fast
    "scaffe.pycaffe.net": ("Net",),
    "scaffe.pycaffe.solver": ("SGDSolver", "NesterovSolver", "AdaGradSolver", "RMSPropSolver", "AdaDeltaSolver",
                              "AdamSolver", "get_solver"),
    "scaffe.pycaffe.process": (
        "NCCL", "TEST", "TRAIN", "Timer", "has_nccl", "init_log", "layer_type_list", "set_device",
        "set_logging_disabled", "set_mode_cpu", "set_mode_gpu", "set_multiprocess", "set_precision",
        "set_random_seed", "set_solver_count", "set_solver_rank", "set_threads", "solver_count",
        "solver_rank"),
    "scaffe.nets.caffe_alias": ("install_as_caffe",),
    "scaffe.net_spec": ("NetSpec", "params", "to_proto"),
    "scaffe.classifier": ("Classifier",),
    "scaffe.detector": ("Detector",),
    "scaffe.report.charts": ("plot_losses",),  # not Caffe's
}
_MODULES = ("_caffe", "classifier", "coord_map", "detector", "draw", "io", "layers", "log", "net_spec", "proto",
            "pycaffe")
_PLACES = {name: home for home, names in _HOMES.items() for name in names} | {"Layer": "scaffe.layers.python"}
_THERE = {"Layer": "UserLayer"}  # called otherwise where they live


def __getattr__(name: str) -> Any:
    """Imports one of Caffe's names on first use."""
    if name == "proto":
        importlib.import_module("scaffe.proto.caffe_pb2")  # people write caffe.proto.caffe_pb2 without importing it
    if name in _MODULES:
        return importlib.import_module(f"scaffe.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'scaffe' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), _THERE.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All names, including those not imported yet."""
    return sorted({*globals(), *_PLACES, *_MODULES})
