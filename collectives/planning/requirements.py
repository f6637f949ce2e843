"""Checks whether an algorithm can do a collective on given ranks. Pure."""

from __future__ import annotations

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import planners
from scaffe.collectives.planning.algorithm import Algorithm
from scaffe.collectives.topology import Topology

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
    if algorithm.pattern is not None and not planners.can(collective, algorithm.pattern):
        raise CommError(f"algorithm '{algorithm}' cannot do {collective}: "
                        f"{', '.join(planners.shapes(collective))} can")


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
