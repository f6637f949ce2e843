"""What may have been written into a blob's data by somebody other than its net's passes."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import ref

import numpy as np


class Watcher(Protocol):
    """Somebody who needs data as they are before they are written."""

    def before_write(self, writes: Writes) -> None:
        """The data that share these writes are about to be written, or to be lent."""


class Writes:
    """Counts writes, and knows whether anybody holds an array through which he may write at any time.

    Blobs that share their data share this too.

    Attributes:
        n: how often the data may have been written.
    """

    def __init__(self) -> None:
        self.n = 0
        self._loans: set[ref[_Loan]] = set()
        self._watchers: tuple[ref[Watcher], ...] = ()

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody, as long as he lives, before the data are written."""
        living = [each for each in self._watchers if each() not in (None, watcher)]
        self._watchers = (*living, ref(watcher))

    def note(self) -> None:
        """Count a write; called before it where somebody may watch."""
        for each in self._watchers:
            watcher = each()
            if watcher is not None:
                watcher.before_write(self)
        self.n += 1

    def lend(self, array: np.ndarray) -> np.ndarray:
        """An array of the same memory, and of the same shape, whose holder may write to it as long as he holds it."""
        self.note()
        loan = _Loan(array)
        self._loans.add(ref(loan, self._loans.discard))
        return np.asarray(loan)

    @property
    def is_lent(self) -> bool:
        """Whether an array that was lent, or a view of one, still lives."""
        return bool(self._loans)


class _Loan:
    """The base of an array that was lent: it lives as long as the array and all views of it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__: dict[str, Any] = array.__array_interface__
