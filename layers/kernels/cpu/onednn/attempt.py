"""Plans on oneDNN where it is installed and has kernels for the case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from scaffe.layers.kernels.cpu.onednn.library import OnednnError, library
from scaffe.layers.kernels.specs import ConvSpec, PoolSpec

Plan = TypeVar("Plan")


def suits(spec: ConvSpec | PoolSpec) -> bool:
    """Whether elements are of a type that oneDNN computes with, and there are some."""
    return (spec.dtype == np.float32 or spec.dtype.kind == "V") and 0 not in spec.in_shape


def can(build: Callable[[], None]) -> bool:
    """Whether oneDNN has the kernels that ``build`` builds."""
    try:
        build()
    except OnednnError as error:
        if error.unimplemented:
            return False
        raise
    return True


def attempt(plan: Callable[..., Plan], *arguments: Any) -> Plan | None:
    """That plan on oneDNN; None where oneDNN is missing or has no kernel for it."""
    lib = library()
    try:
        return None if lib is None else plan(lib, *arguments)
    except OnednnError as error:
        if error.unimplemented:
            return None
        raise
