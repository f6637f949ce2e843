"""All ranks' parts on every rank. The message size is that of the whole buffer."""

from __future__ import annotations

from scaffe.collectives.communicator import Communicator

TAKES_ROOT, REDUCES = False, False


def expected(communicator: Communicator, n_elems: int, root: int) -> list[tuple[int, int, int | None]]:
    """Every part must hold the values of the rank that owns it."""
    parts = [(communicator.part(n_elems, rank), rank) for rank in range(communicator.n_ranks)]
    return [(part.start, part.stop, rank) for part, rank in parts]
