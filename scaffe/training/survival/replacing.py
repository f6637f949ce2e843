"""When ranks are started for lost ones: a state machine without MPI, on the rank that starts them.

Training goes on meanwhile. Ranks come one after another: Open MPI's launcher sends SIGTERM, and then SIGKILL, to all
that were started together where one of them is killed.
"""

from __future__ import annotations

from enum import Enum

MOST_FAILURES = 3


class Next(Enum):
    """What to do next."""

    NOTHING = "nothing"
    START = "start"  # a rank
    TAKE_IN = "take in"  # it, at the next border of an iteration
    GIVE_UP = "give up"  # say why: no rank will be started any more


class Replacing:
    """The machine. The shell asks what is `next`, and says what becomes of it.

    Attributes:
        missing: how many ranks fewer there are than there shall be.
        n_failures: how often in a row one has not come.
    """

    def __init__(self, n_wanted: int) -> None:
        """Args:
            n_wanted: how many ranks there shall be; 0 for as many as there are.
        """
        self._n_wanted, self.missing, self.n_failures = n_wanted, 0, 0
        self._is_starting = self._are_ready = self._has_given_up = False

    def next(self) -> Next:
        """What to do now; asked for once an iteration or more often."""
        if self._has_given_up:
            return Next.NOTHING
        if self._is_starting:
            return Next.TAKE_IN if self._are_ready else Next.NOTHING
        if self.n_failures >= MOST_FAILURES:
            self._has_given_up = True
            return Next.GIVE_UP
        return Next.START if self.missing else Next.NOTHING

    def counted(self, n_ranks: int) -> None:
        """Training begins on so many ranks, after a loss or after others have come in."""
        self.missing = max(self._n_wanted - n_ranks, 0)

    def started(self) -> None:
        """A rank is being started."""
        self._is_starting, self._are_ready = True, False

    def ready(self) -> None:
        """It waits to be taken in."""
        self._are_ready = True

    def failed(self) -> None:
        """It does not come: it could not be started, or died on its way."""
        self._is_starting = self._are_ready = False
        self.n_failures += 1

    def came(self) -> None:
        """It has been taken in."""
        self._is_starting = self._are_ready = False
        self.n_failures = 0
