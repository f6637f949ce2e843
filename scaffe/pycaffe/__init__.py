"""Caffe's Python interface over our nets and solvers (names and semantics of Caffe 1.0's python/caffe)."""

from __future__ import annotations

from typing import Any

import scaffe

__all__ = ["AdaDeltaSolver", "AdaGradSolver", "AdamSolver", "NCCL", "NesterovSolver", "Net",  # noqa: F822
           "RMSPropSolver", "SGDSolver", "Timer"]


def __getattr__(name: str) -> Any:
    """Imports what Caffe's module of this name has, on first use: its parts are imported by others, too."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(scaffe, name)
