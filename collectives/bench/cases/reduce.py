"""The sum over ranks at the root."""

from __future__ import annotations

from scaffe.collectives.communicator import Communicator

TAKES_ROOT, REDUCES = True, True


def expected(communicator: Communicator, n_elems: int, root: int) -> list[tuple[int, int, int | None]]:
    """All of the root's elements must be sums over ranks; the other ranks' may be anything."""
    return [(0, n_elems, None)] if communicator.rank == root else []
