"""Finds the planners: every module `<collective>_<shape>` in the folder `algorithms` is one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import algorithms

COLLECTIVES = ("reduce", "bcast", "allreduce", "reduce_scatter", "allgather")
TREE = "tree"
"""The shape whose names are compositions (see `pattern`); every other shape has one name, and aliases."""


@cache
def modules() -> dict[tuple[str, str], ModuleType]:
    """Imports all planners.

    Returns:
        (collective, shape) -> module, in alphabetical order of shapes.
    """
    found = (module.name.rpartition("_") for module in pkgutil.iter_modules(algorithms.__path__))
    return {(collective, shape): importlib.import_module(f"{algorithms.__name__}.{collective}_{shape}")
            for collective, _, shape in sorted(found, key=lambda parts: parts[2]) if collective in COLLECTIVES}


@cache
def names() -> dict[str, tuple[str, ...]]:
    """The names of each shape, trees excepted.

    Returns:
        Shape -> its names: those of `NAMES` in its modules, the short one first, then the shape itself.

    Raises:
        CommError: two shapes share a name.
    """
    found: dict[str, dict[str, None]] = {}
    for (_, shape), module in modules().items():
        if shape != TREE:
            found.setdefault(shape, {}).update(dict.fromkeys(getattr(module, "NAMES", ())))
    owner: dict[str, str] = {}
    for shape, given in found.items():
        given[shape] = None
        for name in given:
            if owner.setdefault(name.lower(), shape) != shape:
                raise CommError(f"planners {owner[name.lower()]} and {shape} both have the name {name!r}")
    return {shape: tuple(given) for shape, given in found.items()}


def forget() -> None:
    """Clears the cache, so that the next call finds planner files added since."""
    modules.cache_clear()
    names.cache_clear()
