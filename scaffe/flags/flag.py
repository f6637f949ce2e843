"""One flag, and the kinds of values that flags have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

YES, NO = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")
REQUIRED = object()
"""The default of what must be given."""


@dataclass(frozen=True)
class Flag:
    """One flag or, without dashes, one argument of a command.

    Attributes:
        name: with underscores; dashes are taken as well.
        default: its value where it is not given; ``REQUIRED``: it must be given.
        help: what it means, without its default.
        kind: makes the value from its text; raises ValueError, whose message says what was expected.
        choices: all values that it may have; empty: any.
        short: a second name of one letter.
        metavar: what stands for the value in the help.
        section: the heading under which the help lists it; None: it is taken and not used, and not listed.
        is_many: for an argument: it takes all words that are left, one at least, and its value is a list.
    """

    name: str
    default: Any
    help: str
    kind: Callable[[str], Any]
    choices: tuple[str, ...] = ()
    short: str = ""
    metavar: str = ""
    section: str | None = ""
    is_many: bool = False

    def value(self, text: str) -> Any:
        """The value that a text means. Raises ValueError."""
        if self.choices and text not in self.choices:
            raise ValueError(f"must be one of {', '.join(self.choices)}")
        return self.kind(text)


def kind_of(default: Any) -> Callable[[str], Any]:
    """What makes values of a default's type from texts; text for None."""
    return {bool: truth, int: whole, float: number}.get(type(default), str)


def truth(text: str) -> bool:
    """True or False, in gflags' spellings. Raises ValueError."""
    if text.lower() in YES + NO:
        return text.lower() in YES
    raise ValueError("must be true or false")


def whole(text: str) -> int:
    """A whole number. Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def number(text: str) -> float:
    """A number. Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


@functools.cache
def at_least(least: int) -> Callable[[str], int]:
    """A kind: whole numbers from ``least`` on; the same object for the same number."""
    def kind(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise ValueError(f"must be a whole number from {least} on")
        return int(text)

    return kind
