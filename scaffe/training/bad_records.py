"""Records that readers pass over, counted over all ranks (``-skip-bad-records N``)."""

from __future__ import annotations

import threading

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.feed import ReaderOptions
from scaffe.errors import UserError
from scaffe.log import warning


class BadRecords:
    """What the readers of this rank's nets have passed over, and what all ranks know of.

    A record counts once, however many nets, passes and ranks meet it.

    Args:
        n_allowed: how many the job may pass over; 0: the first one ends it.
    """

    def __init__(self, n_allowed: int) -> None:
        self.n_allowed = n_allowed
        self._met: list[str] = []
        self._known: dict[str, None] = {}
        self._lock = threading.Lock()

    @property
    def n_known(self) -> int:
        """Bad records that all ranks know of."""
        return len(self._known)

    def reader_options(self, n_threads: int) -> ReaderOptions:
        """How feeds of this job read."""
        return ReaderOptions(n_threads, n_bad_allowed=self.n_allowed, on_bad=self.note)

    def note(self, line: str) -> None:
        """Keep a reader's line about a bad record; any thread may call."""
        with self._lock:
            self._met.append(line)

    def exchange(self, communicator: Communicator) -> None:
        """Tell the other ranks, and log what is new with the count; every rank calls. Costs one small message where
        nobody has met any.

        Raises:
            UserError: on every rank, where all ranks together have met more than are allowed.
        """
        if not self.n_allowed:
            return
        with self._lock:
            mine, self._met = self._met, []
        n_most = np.array([len(mine)], np.int32)
        if communicator.n_ranks > 1:
            communicator.allreduce(n_most, "max", "mpi")
        if not n_most[0]:
            return
        for line in (line for lines in communicator.allgather_objects(mine) for line in lines):
            if line in self._known:
                continue
            self._known[line] = None
            if len(self._known) > self.n_allowed:
                raise UserError(f"{line}; {len(self._known)} records are bad, at most {self.n_allowed} may be "
                                "(-skip-bad-records)", everywhere=True)
            warning(f"Bad record {len(self._known)} of at most {self.n_allowed} passed over: {line}")
