"""Makes one rank's plan for a collective and a message pattern, and checks whether an algorithm can do it. Pure."""

from __future__ import annotations

from collections.abc import Callable

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import trees as tree
from scaffe.collectives.planning.algorithm import COLLECTIVES, TREE, Algorithm, Pattern, registry, shape_names
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Plan
from scaffe.collectives.topology import Topology


def plan(collective: str, pattern: Pattern, rank: int, call: Call) -> Plan:
    """Plans what `rank` does in `collective`. Raises CommError: an unknown collective, or one that the pattern cannot
    do."""
    return _planner(collective, pattern, call)(rank)


def plans(collective: str, pattern: Pattern, call: Call) -> list[Plan]:
    """Plans what every rank does, in rank order; raises as `plan` does."""
    planner = _planner(collective, pattern, call)
    return [planner(rank) for rank in range(call.n_ranks)]


def can(collective: str, pattern: Pattern) -> bool:
    """Whether there is a planner for `collective` by `pattern`."""
    return (collective, pattern.shape) in registry()


def shapes(collective: str) -> list[str]:
    """The shapes that can do `collective`, trees among them."""
    return [shape for done, shape in registry() if done == collective]


def short_names(collective: str) -> list[str]:
    """The names of the patterns that can do `collective`; of trees, those of one level."""
    found = shapes(collective)
    trees = ["C", "B"] if TREE in found else []
    return trees + [shape_names()[shape][0] for shape in found if shape != TREE]


def _planner(collective: str, pattern: Pattern, call: Call) -> Callable[[int], Plan]:
    if collective not in COLLECTIVES:
        raise CommError(f"no collective is called {collective!r}: known are {', '.join(COLLECTIVES)}")
    if not can(collective, pattern):
        raise CommError(f"algorithm {pattern.name!r} cannot do {collective}: {', '.join(shapes(collective))} can")
    make = registry()[collective, pattern.shape].plan
    trees = (tree.build(pattern, call.topology, call.root),) if pattern.shape == TREE else ()
    idle = call.n_ranks == 1 or call.n_elems == 0
    return lambda rank: Plan(rank, call.n_ranks, call.n_elems, () if idle else tuple(make(rank, call, *trees)))


BY_PARTS = ("reduce_scatter", "allgather")
HAVE_WIRE = HAVE_DOUBLES = ("reduce", "reduce_scatter")


def require(collective: str, algorithm: Algorithm, topology: Topology, dtype: str = "float32") -> None:
    """Raises CommError if `algorithm` cannot do `collective` on arrays of `dtype` on the ranks of `topology`."""
    if algorithm.is_doubled and collective not in HAVE_DOUBLES:
        raise CommError(f"algorithm '{algorithm}' cannot do {collective}: {' and '.join(HAVE_DOUBLES)} can")
    if algorithm.wire:
        _require_wire(collective, algorithm, dtype)
    if algorithm.is_shared and not algorithm.is_split and topology.n_nodes > 1:
        _require_levels(collective, algorithm, topology)
    if algorithm.pattern is not None and not can(collective, algorithm.pattern):
        raise CommError(f"algorithm '{algorithm}' cannot do {collective}: "
                        f"{', '.join(shapes(collective))} can")


def spans_nodes(collective: str, topology: Topology) -> bool:
    """Whether `M` can be combined with a pattern across nodes: the parts of a node's ranks must be contiguous."""
    return collective not in BY_PARTS or all(ranks[-1] - ranks[0] == len(ranks) - 1 for ranks in topology.nodes)


def _require_levels(collective: str, algorithm: Algorithm, topology: Topology) -> None:
    if algorithm.pattern is None:
        raise CommError(f"algorithm {algorithm} needs all ranks on one node, these are on {topology.n_nodes}: add the "
                        "algorithm across nodes, as in MC")
    if not spans_nodes(collective, topology):
        raise CommError(f"algorithm '{algorithm}' cannot do {collective} where the ranks of a node are not "
                        "consecutive")


def _require_wire(collective: str, algorithm: Algorithm, dtype: str) -> None:
    if collective not in HAVE_WIRE:
        raise CommError(f"algorithm '{algorithm}': {collective} has no wire, {' and '.join(HAVE_WIRE)} have")
    if algorithm.library or dtype != "float32":
        raise CommError(f"algorithm '{algorithm}' needs float32 and an algorithm of ours, MPI cannot sum so: "
                        f"got {dtype} and {algorithm.library or str(algorithm).partition(':')[0]}")
