"""The replicas that are left: how they go on together, in a test or a snapshot, when one of them is lost."""

from __future__ import annotations

from collections.abc import Callable

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.log import warning


class Survivors:
    """One replica's view of them. Portions need no such thing: the coordinator gives a lost replica's to others.

    Args:
        replicas: a communicator of all replicas.
        tell: told of a communicator of those that are left.

    Attributes:
        n_settled: how often this replica has come to where all read the same parameters; counted by whoever uses this.
    """

    def __init__(self, replicas: Communicator, tell: Callable[[Communicator], None]) -> None:
        self._replicas, self._tell, self.n_settled = replicas, tell, 0
        self._witness = replicas.lasting_messages()
        self._lost: tuple[int, ...] = ()

    def guard(self, call: Callable[[], None]) -> None:
        """Run something; what replicas do together after a ``settle`` in it is done again if one is lost meanwhile.

        It counts if all that are left have come to its end: they agree on that, so that all do it again or none.

        Raises:
            RankLost: a rank is lost where replicas had not settled.
        """
        while True:
            before, is_whole = self.n_settled, True
            try:
                call()
            except RankLost:
                if self.n_settled == before:
                    raise
                is_whole = False
            if self.n_settled == before or self._witness.agree(is_whole):
                return
            self._shrink()

    def hear(self, lost: tuple[int, ...]) -> None:
        """Go on without those that are lost; all that are left come here after the same phase, with the same ranks."""
        new = [rank for rank in lost if rank not in self._lost]
        if not new:
            return
        self._lost = lost
        self._shrink()
        warning(f"Lost: rank {', '.join(map(str, new))}; {self._replicas.n_ranks} replica(s) go on, and others compute "
                "the portions that it had not sent")

    def _shrink(self) -> None:
        self._replicas = self._replicas.shrink()
        self._replicas.install_excepthook()
        self._witness = self._replicas.lasting_messages()
        self._tell(self._replicas)
