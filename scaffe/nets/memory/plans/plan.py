"""A memory plan: for every array keep, move or compute again, as actions before and after each step."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from scaffe.errors import ExpectedError


class MemoryTooSmallError(ExpectedError):
    """There is no plan within the limit."""


class Choice(Enum):
    """Where an array's contents are between its last use in forward and its first in backward.

    What lasts and is not kept moves at other times, too: between iterations, and between backward and an update that
    comes late. While a plan is looked for, BEHIND stays between forward and backward, LATE between backward and the
    update, BETWEEN in both: it moves between iterations alone. In the plan all three are MOVE.
    """

    KEEP = "keep"
    MOVE = "move"
    AGAIN = "recompute"
    BEHIND = "move behind backward"
    LATE = "move, but not between backward and a late update"
    BETWEEN = "move between iterations"


class Do(Enum):
    """What is done with an array before or after a step.

    SAVE begins to write it out; GONE waits until it is written, and its memory free; FETCH begins to read it back; HERE
    waits until it is read; AGAIN computes it once more; DROP frees its memory, since nobody needs its contents.
    """

    SAVE = "save"
    GONE = "gone"
    FETCH = "fetch"
    HERE = "here"
    AGAIN = "again"
    DROP = "drop"


@dataclass(frozen=True)
class Action:
    """Something to do with one array, by its number."""

    do: Do
    part: int


@dataclass(frozen=True)
class Plan:
    """What is done in one iteration.

    Attributes:
        choices: for each array; KEEP for those whose contents never lie idle.
        before, after: for each step, the actions in their order.
        wanted: the choices that it carries out, as they were given.
    """

    choices: tuple[Choice, ...]
    before: tuple[tuple[Action, ...], ...]
    after: tuple[tuple[Action, ...], ...]
    wanted: tuple[Choice, ...] = ()

    def parts_of(self, do: Do) -> list[int]:
        """The arrays, by number, of all actions of one kind."""
        return [action.part for step in (*self.before, *self.after) for action in step if action.do is do]
