"""The root's buffer on every rank."""

from __future__ import annotations

from scaffe.collectives.communicator import Communicator

TAKES_ROOT, REDUCES = True, False


def expected(communicator: Communicator, n_elems: int, root: int) -> list[tuple[int, int, int | None]]:
    """All elements must be the root's."""
    return [(0, n_elems, root)]
