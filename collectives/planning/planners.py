"""From a collective and the name of an algorithm to one rank's plan: the modules of `algorithms` by their names."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import algorithms, tree
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.names import parse
from scaffe.collectives.planning.plan import Plan

COLLECTIVES = ("reduce", "bcast", "allreduce", "reduce_scatter", "allgather")


def plan(collective: str, name: str, rank: int, call: Call) -> Plan:
    """What `rank` does in `collective` by algorithm `name` (as in `names`; not `mpi`).

    Raises CommError on an unknown collective or name, or where the algorithm cannot do the collective.
    """
    return _planner(collective, name, call)(rank)


def plans(collective: str, name: str, call: Call) -> list[Plan]:
    """The plans of all ranks. Raises as `plan` does."""
    planner = _planner(collective, name, call)
    return [planner(rank) for rank in range(call.n_ranks)]


def can(collective: str, name: str) -> bool:
    """Whether there is a planner for `collective` by algorithm `name`."""
    return f"{collective}_{parse(name).shape}" in _modules()


def shapes(collective: str) -> list[str]:
    """Shapes (as in `names.SHAPES`, and `tree`) that can do `collective`."""
    return [module[len(collective) + 1:] for module in _modules()
            if module.rpartition("_")[0] == collective]


@cache
def _modules() -> tuple[str, ...]:
    return tuple(sorted(module.name for module in pkgutil.iter_modules(algorithms.__path__)))


def _planner(collective: str, name: str, call: Call) -> Callable[[int], Plan]:
    if collective not in COLLECTIVES:
        raise CommError(f"no collective is called {collective!r}: known are {', '.join(COLLECTIVES)}")
    if not can(collective, name):
        raise CommError(f"algorithm {name!r} cannot do {collective}: {', '.join(shapes(collective))} can")
    shape = parse(name).shape
    make = importlib.import_module(f".{collective}_{shape}", algorithms.__name__).plan
    trees = (tree.build(name, call.topology, call.root),) if shape == "tree" else ()
    idle = call.n_ranks == 1 or call.n_elems == 0
    return lambda rank: Plan(rank, call.n_ranks, call.n_elems, () if idle else tuple(make(rank, call, *trees)))
