"""Messages between ranks: small immutable classes, and a codec for those that carry numbers only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import numpy as np

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def message(kind: type[T]) -> type[T]:
    """Decorates a class of fields: its objects are immutable, compared by value, and small, also when pickled."""
    return dataclass(frozen=True, slots=True)(kind)


class Form(NamedTuple):
    """How a kind of message is packed. ``layout``: `struct` format of its numbers; "x" leaves a byte 0; ``make``: makes
    a message from the sender's number and these numbers."""

    kind: type
    layout: str
    names: tuple[str, ...]
    make: Callable[..., Any]


class Codec:
    """Packs messages of numbers into lines of one length, and unpacks them.

    A line is the kind's number (int64), those of the sender and the receiver (int32 each), then the message's numbers.
    """

    def __init__(self, n_words: int, forms: Sequence[Form | None]) -> None:
        """``n_words``: length of a line in words of 8 bytes; the longest form decides; ``forms``: by the kind's number;
        one None, which stands for the message None."""
        self._n_words = n_words
        n_bytes = 8 * (n_words - 2)
        self._packers: dict[type, tuple[int, Callable[..., None], Callable[[Any], tuple[Any, ...]]]] = {}
        self._unpackers: list[tuple[Callable[..., tuple[Any, ...]], Callable[..., Any]]] = []
        for number, form in enumerate(forms):
            kind, layout, names, make = form or Form(type(None), "", (), lambda sender: None)
            line = Struct(f"=q2i{layout}{n_bytes - Struct('=' + layout).size}x")
            self._packers[kind] = number, line.pack_into, _values_of(names)
            self._unpackers.append((line.unpack_from, make))

    def encode(self, message: Any, sender: int, receiver: int = 0) -> np.ndarray:
        """Packs a message. ``message``: of a kind that has a form; or None. Returns int64, shape (n_words,): the
        line."""
        number, pack_into, values_of = self._packers[type(message)]
        line = np.empty(self._n_words, np.int64)
        pack_into(line.data, 0, number, sender, receiver, *values_of(message))
        return line

    def decode(self, line: np.ndarray) -> tuple[int, int, Any]:
        """Unpacks a line: the sender's number, the receiver's number, and the message."""
        unpack_from, make = self._unpackers[int(line[0])]
        _, sender, receiver, *numbers = unpack_from(line.data)
        return sender, receiver, make(sender, *numbers)


def _values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Gives a message's attributes of these names, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    getters = [attrgetter(name) for name in names]
    return lambda message: tuple(get(message) for get in getters)
