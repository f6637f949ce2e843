"""Exchanges bad records between ranks after every iteration's passes, and logs their number at the end."""

from __future__ import annotations

from scaffe.log import info
from scaffe.training.bad_records import BadRecords
from scaffe.training.solver import Observer, Solver


class WatchBadRecords(Observer):
    """Logs the records that readers skipped; ends the run on all ranks when there are more than allowed.

    Args:
        bad: collects the bad records of this rank's readers.
    """

    def __init__(self, bad: BadRecords) -> None:
        self._bad = bad

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """Exchange here: if the gradients are reduced, that has just synchronized the ranks, and nobody waits long."""
        self._bad.exchange(solver.strategy.peers)

    def finish(self, solver: Solver) -> None:
        """Exchange what the last tests met, and what ranks that were no peers have met, and log the total."""
        self._bad.exchange(solver.communicator, known=True)
        info(f"Summary: {self._bad.n_known} bad records were passed over, at most {self._bad.n_allowed} may be")
