"""Bad records told between ranks after every iteration's passes, and counted at the end."""

from __future__ import annotations

from scaffe.log import info
from scaffe.training.bad_records import BadRecords
from scaffe.training.solver import Observer, Solver


class WatchBadRecords(Observer):
    """Logs what readers passed over; ends the run on all ranks where it is too much.

    Args:
        bad: what the readers of this rank's nets tell.
    """

    def __init__(self, bad: BadRecords) -> None:
        self._bad = bad

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """Exchange here, where the reduction has just brought the ranks together."""
        self._bad.exchange(solver.communicator)

    def finish(self, solver: Solver) -> None:
        """The last tests' records, and the sum."""
        self._bad.exchange(solver.communicator)
        info(f"Summary: {self._bad.n_known} bad records were passed over, at most {self._bad.n_allowed} may be")
