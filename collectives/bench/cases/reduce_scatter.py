"""Each rank's part of the sum over ranks. The message size is that of the whole buffer."""

from __future__ import annotations

from scaffe.collectives.communicator import Communicator

TAKES_ROOT, REDUCES = False, True


def expected(communicator: Communicator, n_elems: int, root: int) -> list[tuple[int, int, int | None]]:
    """This rank's part must be sums over ranks."""
    part = communicator.part(n_elems)
    return [(part.start, part.stop, None)]
