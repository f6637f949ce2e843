"""Records that could not be read and were skipped, counted over all ranks (``-skip-bad-records N``)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.feed import ReaderOptions
from scaffe.errors import UserError
from scaffe.log import info, warning
from scaffe.training.ranks import AUTO
from scaffe.training.solver import Observer, Solver


class BadRecords:
    """The bad records that this rank's readers skipped, and those that all ranks have been told of.

    A record counts once, even if several nets, epochs or ranks read it.

    Args:
        n_allowed: how many bad records all ranks together may skip; with 0 the first one ends the run.
    """

    def __init__(self, n_allowed: int) -> None:
        self.n_allowed = n_allowed
        self._met: deque[str] = deque()  # readers add to it, and no lock guards it: see Prefetcher's end
        self._known: dict[str, None] = {}

    @property
    def n_known(self) -> int:
        """How many bad records all ranks have been told of."""
        return len(self._known)

    def reader_options(self, n_threads: int, most: int, scaled_decode: bool = False) -> ReaderOptions:
        """The options for this run's feeds.

        Args:
            n_threads: reader threads; AUTO: as many as the net keeps waiting for, up to ``most``.
            most: the most that this rank has room for.
            scaled_decode: see ReaderOptions.
        """
        wanted = ReaderOptions(1, most, on_choice=info) if n_threads == AUTO else ReaderOptions(n_threads)
        return replace(wanted, n_bad_allowed=self.n_allowed, on_bad=self.note, scaled_decode=scaled_decode)

    def note(self, line: str) -> None:
        """Keep a reader's message about a bad record until the next ``exchange``. Any thread may call this."""
        self._met.append(line)

    def exchange(self, communicator: Communicator, known: bool = False) -> None:
        """Tell ranks of the bad records met since the last call, and log the new ones. Called by all of them.

        When no rank has met any, this costs one allreduce of a single int32.

        Args:
            communicator: the ranks to tell.
            known: tell them of those met before, too, which other ranks may have been told of and not these.

        Raises:
            UserError: on every rank, when all ranks together have met more than ``n_allowed``.
        """
        if not self.n_allowed:
            return
        mine = [*(self._known if known else ()), *(self._met.popleft() for _ in range(len(self._met)))]
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


class WatchBadRecords(Observer):
    """Logs the records that readers skipped; ends the run on all ranks when there are more than allowed.

    Args:
        bad: collects the bad records of this rank's readers.
    """

    def __init__(self, bad: BadRecords) -> None:
        self._bad = bad

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """Exchange here: if the gradients are reduced, that has just synchronized the ranks, and nobody waits long."""
        self._bad.exchange(solver.strategy.in_step.peers)

    def finish(self, solver: Solver) -> None:
        """Exchange what the last tests met, and what ranks that were no peers have met, and log the total."""
        self._bad.exchange(solver.communicator, known=True)
        info(f"Summary: {self._bad.n_known} bad records were passed over, at most {self._bad.n_allowed} may be")
