"""A flag, and the kinds of its values: texts, switches, and numbers within a range."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

YES, NO = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")
REQUIRED = object()
"""The default of what must be given."""
MOST = 2**31 - 1
"""Of whole numbers where nothing else sets a limit: Caffe's int32."""
LARGEST = 1e300  # of other numbers
MOST_THREADS, MOST_RANKS, MOST_BYTES = 4096, 1 << 20, 1 << 46
"""Of threads of a process, ranks of a job and bytes of a message: more than any machine has."""
LONG_POWER = 16  # of two: from the next one on numbers are shown as powers
WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
NUMBER = re.compile(r"[+-]?([0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})([eE][+-]?[0-9]{1,5})?")


@dataclass(frozen=True)
class Flag:
    """One flag or, without dashes, one argument of a command.

    Attributes:
        name: with underscores; dashes are taken as well.
        default: its value if it is not given; ``REQUIRED``: it must be given.
        help: its meaning, without the default.
        kind: converts a text to the value; raises ValueError, whose message says what was expected.
        choices: all values that it may have; empty: any.
        short: a second name of one letter.
        metavar: the placeholder for the value in the help.
        section: the heading under which the help lists it; None: it is accepted, ignored and not listed.
        is_many: for an argument, whether it takes all remaining words, at least one; its value is then a list.
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
    numbers = {int: whole(-MOST - 1), float: number(-LARGEST, LARGEST)}
    return truth if isinstance(default, bool) else numbers.get(type(default), str)


def truth(text: str) -> bool:
    """True or False, in gflags' spellings. Raises ValueError."""
    if text.lower() in YES + NO:
        return text.lower() in YES
    raise ValueError("must be true or false")


@dataclass(frozen=True)
class Range:
    """A kind: the numbers between two. Its help and its error name both.

    Attributes:
        least, most: the two, which belong to it.
        is_whole: whether fractions are refused.
        words: other texts that it takes, each with its value.
        is_kept: whether the value is the text itself.
    """

    least: float
    most: float
    is_whole: bool = True
    words: tuple[tuple[str, Any], ...] = ()
    is_kept: bool = False

    def __call__(self, text: str) -> Any:
        """The value that a text means. Raises ValueError."""
        value = dict(self.words).get(text)
        if value is None:
            value = self._number(text)
        return text if self.is_kept else value

    def _number(self, text: str) -> float:
        """A number of the range. Raises ValueError."""
        matched = (WHOLE if self.is_whole else NUMBER).fullmatch(text.strip())
        found = (int(text) if self.is_whole else float(text)) if matched else math.nan
        if self.least <= found <= self.most:
            return found
        words = "".join(f"{word} or " for word, _ in self.words)
        raise ValueError(f"must be {words}a {'whole ' * self.is_whole}number from {self}")

    def __str__(self) -> str:
        return f"{_shown(self.least)} to {_shown(self.most)}"


def _shown(number: float) -> str:
    """A large number as a power of two, which is what such limits are: 2^31-1."""
    for offset, ending in ((0, ""), (1, "-1")):
        power = (int(abs(number)) + offset).bit_length() - 1
        if abs(number) + offset == 2**power and power > LONG_POWER:
            return f"{'-' * (number < 0)}2^{power}{ending}"
    return f"{number:g}" if isinstance(number, float) else str(number)


def whole(least: int, most: int = MOST, **words: Any) -> Range:
    """A kind: whole numbers, and words with their values."""
    return Range(least, most, words=tuple(words.items()))


def number(least: float, most: float, **words: Any) -> Range:
    """A kind: numbers, and words with their values."""
    return Range(float(least), float(most), is_whole=False, words=tuple(words.items()))
