"""The sum over ranks on every rank."""

from __future__ import annotations

from scaffe.collectives.communicator import Communicator

TAKES_ROOT, REDUCES = False, True


def expected(communicator: Communicator, n_elems: int, root: int) -> list[tuple[int, int, int | None]]:
    """All elements must be sums over ranks."""
    return [(0, n_elems, None)]
