"""Counts a feed's bad records, up to the number that is tolerated."""

from __future__ import annotations

from collections.abc import Callable

from scaffe import forking
from scaffe.data.errors import DataError


class Tolerance:
    """Counts bad records, each once, however many threads and epochs meet it.

    Args:
        n_allowed: bad records that are tolerated; 0 tolerates none.
        n_records: number of records of the source. At least one must be good, whatever ``n_allowed`` is.
        on_bad: called with one line for each bad record that is tolerated.
    """

    def __init__(self, n_allowed: int, n_records: int, on_bad: Callable[[str], None] | None = None) -> None:
        self.n_allowed, self._most, self._on_bad = n_allowed, min(n_allowed, n_records - 1), on_bad
        self._bad: set[int] = set()
        self._lock = forking.Lock()

    def pass_over(self, record: int, error: DataError) -> None:
        """Count a bad record; ``error`` says what is wrong with it. Raises DataError if there are too many now."""
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
