"""One rank's part in recovery after a loss: a state machine without MPI.

What a rank has done counts in *steps*: updates, and recoveries. All steps are taken alike: first every rank gets all
that it takes (sums its gradients; rebuilds its solver), then all meet, then each takes the step by itself, sending
nothing. A meeting may fail on some ranks and not on others, but it succeeds nowhere before all have come. So a rank
that has taken a step knows that every other one has all that it takes, and can follow: no rank goes back, and no update
is lost that another rank has seen.

Where ranks are not in step, each updates by itself: then only recoveries are steps.

New ranks join at the end of an iteration, where all have taken the same steps. JOIN is a transaction: all ranks have
the larger communicator, or none has. From then on it is a recovery in which no rank is lost. A new
rank has nothing before it has taken its first step; until then it can be given all, and gives nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from scaffe.errors import ExpectedError


class Act(Enum):
    """What a rank does next. All but TRAIN and FOLLOW are done by all ranks together, and fail where one is lost."""

    TRAIN = "train"  # iterations, until a rank is lost or new ones are ready
    JOIN = "join"  # a communicator with the new ranks; the old one is left where it fails
    SHRINK = "shrink"  # a communicator of those that are left; never fails
    TELL = "tell"  # each says its place to all
    FOLLOW = "follow"  # take the step that another rank has taken already
    REBUILD = "rebuild"  # a solver for the new communicator, loaded
    MEET = "meet"


@dataclass(frozen=True)
class Place:
    """How far a rank has come.

    Attributes:
        is_ready: whether it has all that the next one takes.
        is_new: whether it has joined and not yet taken a step: it has nothing to give.
    """

    step: int
    is_ready: bool
    is_new: bool = False


class RanksReady(Exception):  # noqa: N818 - no error
    """New ranks wait to join, now that an iteration has ended on all ranks."""


class NothingLeft(ExpectedError):
    """All ranks that had parameters are lost; those that are left had just joined."""


class OutOfStep(RuntimeError):
    """A rank has taken a step that this one cannot take: never, if all do as this module says."""


class RecoveryStateMachine:
    """The machine. Its caller carries out `act`, then calls `done` or, where a rank was lost in it, `lost`.
    ``is_ready``: whether all that the next one takes is here."""

    def __init__(self, step: int = 0, counts_updates: bool = True) -> None:
        """``counts_updates``: whether updates are steps."""
        self.act, self.step, self.is_ready = Act.TRAIN, step, False
        self._counts_updates, self._is_new = counts_updates, False

    @classmethod
    def for_joining_rank(cls, counts_updates: bool = True) -> RecoveryStateMachine:
        """The machine of a rank that has just joined; see the constructor."""
        made = cls(0, counts_updates)
        made.act, made._is_new = Act.TELL, True
        return made

    @property
    def place(self) -> Place:
        return Place(self.step, self.is_ready, self._is_new)

    def prepared(self) -> None:
        """All that the next update takes is here; the ranks are about to meet."""
        self.is_ready = self._counts_updates

    def taken(self) -> None:
        """The ranks have met, and this one has updated."""
        if self._counts_updates:
            self._took()

    def joining(self) -> None:
        """New ranks are ready, and all have taken the same steps."""
        self.act = Act.JOIN

    def lost(self) -> None:
        """A rank was lost in `act`, or before it could begin."""
        self.act = Act.SHRINK

    def done(self, places: Sequence[Place] = ()) -> None:
        """`act` has been done.

        Args:
            places: after TELL, those of all ranks that are left.

        Raises:
            OutOfStep: another rank is further than this one can follow.
            NothingLeft: on all ranks, which are new.
        """
        if self.act in (Act.SHRINK, Act.JOIN):
            self.act = Act.TELL
        elif self.act is Act.TELL:
            self._meet_new(places)
            self._compare(max(place.step for place in places if not place.is_new or place.is_ready))
        elif self.act is Act.FOLLOW:
            self._took()
            self.act = Act.REBUILD
        elif self.act is Act.REBUILD:
            self.is_ready = True
            self.act = Act.MEET
        elif self.act is Act.MEET:
            self._took()
            self.act = Act.TRAIN

    def _took(self) -> None:
        self.step, self.is_ready, self._is_new = self.step + 1, False, False

    def _meet_new(self, places: Sequence[Place]) -> None:
        if all(place.is_new for place in places):
            if not all(place.is_ready for place in places):
                raise NothingLeft("all ranks that had parameters are lost; -resume auto goes on from the newest "
                                  "snapshot", everywhere=True)
            self.step -= 1  # all have been given all: they take the step that the others could not
        elif self._is_new and not self.is_ready:
            self.step = max(place.step for place in places if not place.is_new)

    def _compare(self, furthest: int) -> None:
        if furthest > self.step + self.is_ready:
            raise OutOfStep(f"a rank has taken {furthest} steps, this one {self.step}"
                            f"{' and is ready for one more' if self.is_ready else ''}")
        if furthest > self.step:
            self.act = Act.FOLLOW
        else:  # no rank has taken the next step: those that are left begin it again
            self.is_ready = False
            self.act = Act.REBUILD
