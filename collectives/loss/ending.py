"""How a rank leaves MPI where ranks may be lost: without MPI_Finalize, since Open MPI's may wait for ever after a loss.

It did in 3 of 44 runs of a trial that had gone on after a kill; ranks that met and then ended without it, in 0 of 40.
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from typing import Any


class Ending:
    """What this process does when it ends, in place of mpi4py, whose own finalizing is switched off."""

    def __init__(self) -> None:
        self._last: Any = None

    def install(self) -> None:
        """MPI has been started: from now on this object ends it."""
        atexit.register(self._leave)

    def without(self, comm: Any) -> None:
        """The last thing that the ranks of mpi4py's `comm` do together is to meet; they do not finalize MPI."""
        self._last = comm

    def first(self, comm: Any) -> None:
        """As `without`, where nothing has been said yet.

        A rank that leaves is then as good as lost to one that has just found a loss, which would wait for it otherwise.
        """
        self._last = self._last or comm

    def _leave(self) -> None:
        from mpi4py import MPI

        if MPI.Is_finalized():
            return
        if self._last is None:
            MPI.Finalize()
            return
        with suppress(MPI.Exception):  # another one is lost: who is left ends by itself
            self._last.Barrier()


ENDING = Ending()
