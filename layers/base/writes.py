"""Counts writes to a blob's data by others than its net's passes, like a version counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import ref

import numpy as np


class Watcher(Protocol):
    """An object that copies data before they are overwritten."""

    def before_write(self, writes: Writes) -> None:
        """Called before the data that share ``writes`` are written, or lent."""


class Writes:
    """Counts writes (``n``), and tracks whether a user holds an array through which he may write at any time. Blobs
    that share their data share this object too."""

    def __init__(self) -> None:
        self.n = 0
        self._loans: set[ref[_Loan]] = set()
        self._watchers: tuple[ref[Watcher], ...] = ()

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher.before_write`` before the data are written, as long as the watcher is alive."""
        living = [each for each in self._watchers if each() not in (None, watcher)]
        self._watchers = (*living, ref(watcher))

    def note(self) -> None:
        """Count a write. Call it before the write, since watchers may copy the data."""
        for each in self._watchers:
            watcher = each()
            if watcher is not None:
                watcher.before_write(self)
        self.n += 1

    def lend(self, array: Any, asarray: Callable[[Any], Any] = np.asarray) -> Any:
        """Lend the data: returns an array of the same memory and shape, to which its holder may write at any time.

        Args:
            array: the data, on the host or a device.
            asarray: makes an array of what has its interface, and keeps that: NumPy's function, or CuPy's.
        """
        self.note()
        loan = _Loan(array)
        self._loans.add(ref(loan, self._loans.discard))
        return asarray(loan)

    @property
    def is_lent(self) -> bool:
        """Whether an array that was lent, or a view of one, is still alive."""
        return bool(self._loans)


class _Loan:
    """The base of an array that was lent: it is alive as long as the array or a view of it."""

    def __init__(self, array: Any) -> None:
        self.array = array
        interface = "__array_interface__" if isinstance(array, np.ndarray) else "__cuda_array_interface__"
        setattr(self, interface, getattr(array, interface))
