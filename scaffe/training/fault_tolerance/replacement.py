"""The flags that say what happens when ranks are lost, and the ranks that are started for lost ones."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.fault_tolerance import ulfm
from scaffe.collectives.fault_tolerance.joining import JoiningRanks
from scaffe.errors import UserError
from scaffe.flags import Flags, whole

STOP, SHRINK, REPLACE = "stop", "shrink", "replace"


def add_flags(flags: Flags) -> None:
    """Add ``-on_rank_loss`` and ``-history_copies``."""
    flags.flag("on_rank_loss", STOP, "what the others do: stop, shrink, replace",
               choices=(STOP, SHRINK, REPLACE), metavar="WHAT")
    flags.flag("history_copies", 1, "second copies of histories", kind=whole(0, 1))


def check(options: Any, strategy: Any, communicator: Communicator) -> None:
    """Check that this job can continue when a rank is lost, if it is to. Called by all ranks.
    Raises UserError on all ranks if this job's MPI or the strategy ends with a lost rank."""
    if options.on_rank_loss == STOP or communicator.n_ranks == 1:
        return
    fault = ulfm.fault()
    if options.on_rank_loss == REPLACE:
        fault = fault or strategy.fault_tolerance_type.why_no_replacement(options)
    if fault := fault or strategy.fault_tolerance_type.why_not_fault_tolerant:
        raise UserError(f"-on_rank_loss {options.on_rank_loss} cannot be had: {fault}", everywhere=True)


def tolerates_rank_loss(options: Any) -> bool:
    """Whether the options ask training to continue when ranks are lost."""
    return bool(getattr(options, "on_rank_loss", "stop") != "stop")


def keeps_copies(options: Any) -> bool:
    """Whether the options ask for second copies."""
    return tolerates_rank_loss(options) and bool(getattr(options, "history_copies", 0))


MAX_FAILURES = 3


class Next(Enum):
    """What to do next."""

    NOTHING = "nothing"
    START = "start"  # a rank
    TAKE_IN = "take in"  # let it join at the end of this iteration
    GIVE_UP = "give up"  # say why: no rank will be started any more


class Replacing:
    """The state machine. Its caller asks what is `next`, and says what became of it.

    Attributes:
        missing: how many ranks fewer there are than there shall be.
        n_failures: how often in a row one has not come.
    """

    def __init__(self, n_wanted: int) -> None:
        """``n_wanted``: how many ranks there shall be; 0 for as many as there are."""
        self._n_wanted, self.missing, self.n_failures = n_wanted, 0, 0
        self._is_starting = self._are_ready = self._has_given_up = False

    def next(self) -> Next:
        """What to do now; asked for once an iteration or more often."""
        if self._has_given_up:
            return Next.NOTHING
        if self._is_starting:
            return Next.TAKE_IN if self._are_ready else Next.NOTHING
        if self.n_failures >= MAX_FAILURES:
            self._has_given_up = True
            return Next.GIVE_UP
        return Next.START if self.missing else Next.NOTHING

    def counted(self, n_ranks: int) -> None:
        """Training begins on so many ranks, after a loss or after others have joined."""
        self.missing = max(self._n_wanted - n_ranks, 0)

    def started(self) -> None:
        self._is_starting, self._are_ready = True, False

    def ready(self) -> None:
        """It waits to join."""
        self._are_ready = True

    def failed(self) -> None:
        self._is_starting = self._are_ready = False
        self.n_failures += 1

    def came(self) -> None:
        self._is_starting = self._are_ready = False
        self.n_failures = 0


class Spawner:
    """Starts ranks, on rank 0; on others it does nothing.

    Args:
        n_wanted: how many ranks there shall be; 0 to start none.

    Attributes:
        joining_ranks: those that have been started and have not joined yet.
    """

    def __init__(self, n_wanted: int, task: Any) -> None:
        self._replacing, self._task = Replacing(n_wanted), task
        self.joining_ranks: JoiningRanks | None = None

    def counted(self, rank: int, n_ranks: int) -> None:
        """Training begins on so many ranks; of two ranks that have been rank 0, the later one starts others."""
        self._replacing.counted(n_ranks if rank == 0 else sys.maxsize)

    def are_ready(self) -> bool:
        """Whether a rank waits to join; starts one where any is missing. Called in every iteration."""
        if self.joining_ranks is not None:
            self._look(self.joining_ranks)
        what = self._replacing.next()
        if what is Next.START:
            command = [sys.executable, "-m", "scaffe", "join"]
            self.joining_ranks = JoiningRanks(command, 1, self._task)
            self._replacing.started()
        elif what is Next.GIVE_UP:
            log.warning("No more ranks are started for lost ones: that has failed "
                        f"{self._replacing.n_failures} times")
        return what is Next.TAKE_IN

    def taken(self) -> JoiningRanks | None:
        """Hand over those that are ready; the caller says what becomes of them (``came``)."""
        found, self.joining_ranks = self.joining_ranks, None
        return found

    def came(self, are_in: bool) -> None:
        if are_in:
            self._replacing.came()
        else:
            self._replacing.failed()

    def close(self) -> None:
        if self.joining_ranks is not None:
            self.joining_ranks.dismiss()

    def _look(self, joining_ranks: JoiningRanks) -> None:
        joining_ranks.look()
        if joining_ranks.fault:
            log.warning(f"Ranks that were started for lost ones have not joined: {joining_ranks.fault}")
            self._replacing.failed()
            self.joining_ranks = None
        elif joining_ranks.are_ready:
            self._replacing.ready()
