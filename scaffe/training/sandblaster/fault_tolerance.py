"""FaultTolerance of Sandblaster: the replicas that are left continue in place, and compute what a lost one had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaffe.collectives.errors import RankLost
from scaffe.log import warning
from scaffe.training.strategies.fault_tolerance import FaultTolerance


class SandblasterFaultTolerance(FaultTolerance):
    """Replicas recover in place. The coordinator gives a lost replica's portions to others by itself.

    Attributes:
        n_synchronized: how often this replica has come to where all read the same parameters; counted by the strategy.
    """

    why_not_fault_tolerant = ""
    recovers_in_place = True
    n_synchronized = 0
    _is_on = False
    _lost: tuple[int, ...] = ()

    @classmethod
    def why_no_replacement(cls, options: Any) -> str:
        return "this strategy goes on with the ranks that are left (shrink), and takes nobody in"

    def begin(self) -> None:
        """Watch for losses from now on. Called by all replicas."""
        self._is_on, self._witness = True, self.replica.communicator.fault_tolerant_messages()

    def guard(self, call: Callable[[], None]) -> None:
        """Run something; what replicas do together after a synchronization in it is repeated if one is lost meanwhile.

        It counts if all that are left have come to its end: they agree on that, so that all do it again or none.

        Raises:
            RankLost: a rank is lost where replicas had not synchronized.
        """
        while True:
            before, is_whole = self.n_synchronized, True
            try:
                call()
            except RankLost:
                if not self._is_on or self.n_synchronized == before:
                    raise
                is_whole = False
            if not self._is_on or self.n_synchronized == before or self._witness.agree(is_whole):
                return
            self._shrink()

    def hear(self, lost: tuple[int, ...]) -> None:
        """Go on without those that are lost; all that are left come here after the same phase, with the same ranks."""
        new = [rank for rank in lost if rank not in self._lost]
        if not new or not self._is_on:
            return
        self._lost = lost
        self._shrink()
        warning(f"Lost: rank {', '.join(map(str, new))}; {self.replica.communicator.n_ranks} replica(s) go on, and "
                "others compute the portions that it had not sent")

    def _shrink(self) -> None:
        left = self.replica.communicator.shrink()
        left.install_excepthook()
        self.replica.communicator = left
        self._witness = left.fault_tolerant_messages()
        self.on_shrink(left)
