"""Makes one rank's plan for a collective and a message pattern."""

from __future__ import annotations

from collections.abc import Callable

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import tree
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.pattern import Pattern
from scaffe.collectives.planning.plan import Plan
from scaffe.collectives.planning.registry import COLLECTIVES, TREE, modules, names


def plan(collective: str, pattern: Pattern, rank: int, call: Call) -> Plan:
    """Plans what `rank` does in `collective`.

    Raises:
        CommError: an unknown collective, or one that the pattern cannot do.
    """
    return _planner(collective, pattern, call)(rank)


def plans(collective: str, pattern: Pattern, call: Call) -> list[Plan]:
    """Plans what every rank does, in rank order; raises as `plan` does."""
    planner = _planner(collective, pattern, call)
    return [planner(rank) for rank in range(call.n_ranks)]


def can(collective: str, pattern: Pattern) -> bool:
    """Whether there is a planner for `collective` by `pattern`."""
    return (collective, pattern.shape) in modules()


def shapes(collective: str) -> list[str]:
    """The shapes that can do `collective`, trees among them."""
    return [shape for done, shape in modules() if done == collective]


def short_names(collective: str) -> list[str]:
    """The names of the patterns that can do `collective`; of trees, those of one level."""
    found = shapes(collective)
    trees = ["C", "B"] if TREE in found else []
    return trees + [names()[shape][0] for shape in found if shape != TREE]


def _planner(collective: str, pattern: Pattern, call: Call) -> Callable[[int], Plan]:
    if collective not in COLLECTIVES:
        raise CommError(f"no collective is called {collective!r}: known are {', '.join(COLLECTIVES)}")
    if not can(collective, pattern):
        raise CommError(f"algorithm {pattern.name!r} cannot do {collective}: {', '.join(shapes(collective))} can")
    make = modules()[collective, pattern.shape].plan
    trees = (tree.build(pattern, call.topology, call.root),) if pattern.shape == TREE else ()
    idle = call.n_ranks == 1 or call.n_elems == 0
    return lambda rank: Plan(rank, call.n_ranks, call.n_elems, () if idle else tuple(make(rank, call, *trees)))
