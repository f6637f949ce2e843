"""All-gathers: every rank ends with all parts."""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost, planner
from scaffe.collectives.planning.exchange import Ring
from scaffe.collectives.planning.plan import Recv, Send, Step, chunks


@planner("allgather", "doubling", lambda n: Cost((n - 1).bit_length(), (n - 1) / n, (n - 1) / n), names=("D", "bruck"))
def doubling(rank: int, call: Call) -> list[Step]:
    """In round i every rank has the parts of 2^i places and gets as many from 2^i places ahead.

    This is Bruck's algorithm without its rotation: parts lie at their final place from the start, so consecutive places
    are one interval, or two where they wrap round the end.
    Cost, a rank: ceil(log2 P) rounds, sends and receives (P-1)/P n_elems, for any P.
    Wins: small and medium messages.
    Source: Bruck et al., IEEE TPDS 1997; Thakur, Rabenseifner, Gropp 2005, its all-gather section.
    """
    steps: list[Step] = []
    n_held = 1
    while n_held < call.n_ranks:
        n_moved = min(n_held, call.n_ranks - n_held)
        behind, ahead = (rank - n_held) % call.n_ranks, (rank + n_held) % call.n_ranks
        steps += [Send(behind, *chunk) for chunk in _chunks(call, rank, n_moved)]
        steps += [Recv(ahead, *chunk) for chunk in _chunks(call, ahead, n_moved)]
        n_held += n_moved
    return steps


def _chunks(call: Call, first: int, n_parts: int) -> list[tuple[int, int]]:
    """Chunks of the parts of ranks first .. first + n_parts - 1, counted round the end."""
    offsets = call.bounds()
    end = first + n_parts
    intervals = [(offsets[first], offsets[min(end, call.n_ranks)]), (0, offsets[max(end - call.n_ranks, 0)])]
    return [chunk for interval in intervals for chunk in chunks(*interval, call.chunk_elems)]


@planner("allgather", "ring", lambda n: Cost(n - 1, (n - 1) / n, (n - 1) / n), names=("R",))
def ring(rank: int, call: Call) -> list[Step]:
    """P - 1 rounds on a ring, each passing one part on to the next rank.

    Cost, a rank: sends and receives (P-1)/P n_elems in P - 1 rounds of one part; the wire's limit.
    Wins: large messages. Source: Thakur, Rabenseifner, Gropp 2005, its all-gather section.
    """
    return Ring(rank, call).allgather(send_own=True)
