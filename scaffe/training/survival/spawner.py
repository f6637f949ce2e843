"""Starts ranks for lost ones (``-on_rank_loss replace``): the shell around survival.replacing."""

from __future__ import annotations

import sys
from typing import Any

from scaffe import log
from scaffe.collectives.loss.newcomers import Newcomers
from scaffe.training.survival.replacing import Next, Replacing


class Spawner:
    """On rank 0 it starts ranks, elsewhere it does nothing.

    Args:
        n_wanted: how many ranks there shall be; 0: nobody is started.
        task: what a new rank has to know, picklable.

    Attributes:
        newcomers: those that are on their way.
    """

    def __init__(self, n_wanted: int, task: Any) -> None:
        self._replacing, self._task = Replacing(n_wanted), task
        self.newcomers: Newcomers | None = None

    def counted(self, rank: int, n_ranks: int) -> None:
        """Training begins on so many ranks; of two ranks that have been rank 0, the later one starts others."""
        self._replacing.counted(n_ranks if rank == 0 else sys.maxsize)

    def are_ready(self) -> bool:
        """Whether a rank waits to be taken in; starts one where any is missing. Called in every iteration."""
        if self.newcomers is not None:
            self._look(self.newcomers)
        what = self._replacing.next()
        if what is Next.START:
            command = [sys.executable, "-m", "scaffe", "join"]
            self.newcomers = Newcomers(command, 1, self._task)
            self._replacing.started()
        elif what is Next.GIVE_UP:
            log.warning("No ranks are started any more for the lost ones: it has failed "
                        f"{self._replacing.n_failures} times")
        return what is Next.TAKE_IN

    def taken(self) -> Newcomers | None:
        """Those that are ready; whatever becomes of them now, they are on their way no longer."""
        found, self.newcomers = self.newcomers, None
        return found

    def came(self, are_in: bool) -> None:
        """Whether those that were taken are ranks now."""
        if are_in:
            self._replacing.came()
        else:
            self._replacing.failed()

    def close(self) -> None:
        """Nobody is wanted any longer."""
        if self.newcomers is not None:
            self.newcomers.dismiss()

    def _look(self, newcomers: Newcomers) -> None:
        newcomers.look()
        if newcomers.fault:
            log.warning(f"Ranks that were started for lost ones do not come: {newcomers.fault}")
            self._replacing.failed()
            self.newcomers = None
        elif newcomers.are_ready:
            self._replacing.ready()
