"""How many of a feed's records may be bad, and which have been met."""

from __future__ import annotations

import threading
from collections.abc import Callable

from scaffe.data.errors import DataError


class Tolerance:
    """Notes bad records, each once, whatever thread or pass of the data meets it.

    Args:
        n_allowed: bad records that a feed passes over.
        n_records: of the source; they are never all passed over.
        on_bad: called with one line for each bad record.
    """

    def __init__(self, n_allowed: int, n_records: int, on_bad: Callable[[str], None] | None = None) -> None:
        self.n_allowed, self._most, self._on_bad = n_allowed, min(n_allowed, n_records - 1), on_bad
        self._bad: set[int] = set()
        self._lock = threading.Lock()

    def pass_over(self, record: int, error: DataError) -> None:
        """Note that the record is bad, for the reason that ``error`` gives. Raises DataError where too many are."""
        with self._lock:
            if record in self._bad:
                return
            if not self.n_allowed:
                raise error
            if len(self._bad) == self._most:
                raise DataError(f"{error}; {self._most + 1} records are bad, at most {self._most} may be") from error
            self._bad.add(record)
        if self._on_bad:
            self._on_bad(str(error))
