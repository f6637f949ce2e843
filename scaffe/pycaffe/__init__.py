"""Caffe's Python interface over our nets and solvers (names and semantics of Caffe 1.0's python/caffe)."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {"net": ("Net",), "process": ("NCCL", "Timer"), "solver": ("SGDSolver", "NesterovSolver", "AdaGradSolver",
                                                                   "RMSPropSolver", "AdaDeltaSolver", "AdamSolver")}
_PLACES = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_PLACES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Imports what Caffe's module of this name has, on first use: its parts are imported by others, too."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
