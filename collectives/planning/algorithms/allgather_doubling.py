"""All-gather by doubling: in round i every rank has the parts of 2^i places and gets as many from 2^i places ahead.

This is Bruck's algorithm without its rotation: parts lie at their final place from the start, so a run of places is
one interval, or two where it wraps round the end.
Cost, a rank: ceil(log2 P) rounds, sends and receives (P-1)/P n_elems, for any P.
Wins: small and medium messages. Source: Bruck et al., IEEE TPDS 1997; Thakur,
Rabenseifner, Gropp 2005, its all-gather section.
"""

from __future__ import annotations

from scaffe.collectives.planning.call import Call, Cost
from scaffe.collectives.planning.plan import Recv, Send, Step, chunks

NAMES = ("D", "bruck")


def plan(rank: int, call: Call) -> list[Step]:
    """Steps of `rank`; every rank ends with all parts."""
    steps: list[Step] = []
    n_held = 1
    while n_held < call.n_ranks:
        n_moved = min(n_held, call.n_ranks - n_held)
        behind, ahead = (rank - n_held) % call.n_ranks, (rank + n_held) % call.n_ranks
        steps += [Send(behind, *chunk) for chunk in _chunks(call, rank, n_moved)]
        steps += [Recv(ahead, *chunk) for chunk in _chunks(call, ahead, n_moved)]
        n_held += n_moved
    return steps


def cost(n_ranks: int) -> Cost:
    """Rounds, and n_elems that the busiest ranks send and receive."""
    return Cost((n_ranks - 1).bit_length(), (n_ranks - 1) / n_ranks, (n_ranks - 1) / n_ranks)


def _chunks(call: Call, first: int, n_parts: int) -> list[tuple[int, int]]:
    """Chunks of the parts of ranks first .. first + n_parts - 1, counted round the end."""
    offsets = call.bounds()
    end = first + n_parts
    runs = [(offsets[first], offsets[min(end, call.n_ranks)]), (0, offsets[max(end - call.n_ranks, 0)])]
    return [chunk for run in runs for chunk in chunks(*run, call.chunk_elems)]
