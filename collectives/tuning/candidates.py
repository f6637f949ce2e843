"""Which algorithms `tune` measures (pure)."""

from __future__ import annotations

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.planners import short_names
from scaffe.collectives.planning.registry import COLLECTIVES
from scaffe.collectives.planning.requirements import spans_nodes
from scaffe.collectives.topology import Topology


def candidates(collective: str, topology: Topology) -> list[str]:
    """Lists the algorithms worth measuring.

    Args:
        collective: its name.
        topology: of the ranks to measure on.

    Returns:
        Names, the MPI library's own call first.

    Raises:
        CommError: on an unknown collective.
    """
    if collective not in COLLECTIVES:
        raise CommError(f"no collective is called {collective!r}: known are {', '.join(COLLECTIVES)}")
    shared = topology.n_nodes < topology.n_ranks
    spans = topology.n_nodes > 1
    flat = short_names(collective) if topology.n_ranks > 1 else []
    above = [f"M{name}" for name in flat] if spans_nodes(collective, topology) else []
    above += [f"S{name}" for name in flat] if min(map(len, topology.nodes)) > 1 else []  # S of one share is M
    found = ["mpi", *(["M"] if shared and not spans else []), *(above if shared and spans else []), *flat]
    sizes = (["node"] if shared and spans else []) + [str(ranks) for ranks in (4, 8, 16) if ranks < topology.n_ranks]
    return found + [f"{levels}-{size}" for levels in ("CB", "CC") for size in sizes if "C" in flat]
