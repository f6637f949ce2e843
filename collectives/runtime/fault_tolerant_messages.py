"""Messages between two ranks that survive the loss of others."""

from __future__ import annotations

from typing import Any

from scaffe.collectives.errors import RankLost
from scaffe.collectives.fault_tolerance import ulfm
from scaffe.collectives.runtime.freed_communicator import ForkAware
from scaffe.collectives.runtime.point_to_point import PointToPoint


class FaultTolerantMessages(ForkAware):
    """Sends and receives that survive the loss of ranks (`Communicator.fault_tolerant_messages`).

    A call that fails by a lost rank raises RankLost once the loss is known; messages of other ranks come as before.
    Nothing is revoked, so a rank that exchanges nothing with a lost one is not notified.

    Attributes:
        messages: the sends and receives; for one thread.
    """

    rank_attributes = ("_comm",)

    def __init__(self, comm: Any, deadline: float) -> None:
        """``comm``: mpi4py communicator that nobody else uses; ``deadline``: seconds after which waiting is an
        error."""
        self._comm, self._lost = comm, ()
        self.messages = PointToPoint(comm, deadline, self)
        self.invalidate_in_child()

    def lost(self) -> tuple[int, ...]:
        """The ranks known to be lost, ascending. Receives from any source no longer wait for them."""
        failed = self._comm.Get_failed()
        if failed.size > len(self._lost):
            self._comm.Ack_failed(failed.size)
            group = self._comm.Get_group()
            self._lost = tuple(sorted(failed.Translate_ranks(None, group)))
            group.Free()
        failed.Free()
        return self._lost

    def agree(self, is_right: bool = True) -> bool:
        """Returns when all ranks that are left have called it: the same on each of them. ``is_right``: what this rank
        says. Returns whether all say so, and nobody is lost of whom a rank has not heard."""
        from mpi4py import MPI

        try:
            return bool(self._comm.Agree(int(is_right)))
        except MPI.Exception as error:
            if not ulfm.is_loss(error):
                raise
            return False

    def free(self) -> None:
        self._comm.Free()

    def check_peer(self, rank: int) -> None:
        """Raises RankLost where that rank is known to be lost."""
        if rank in self._lost:
            raise RankLost(self._comm.rank, self._lost)

    def as_rank_lost(self, error: Exception) -> Exception:
        """What to raise for an exception out of MPI: RankLost for a loss, itself otherwise."""
        return RankLost(self._comm.rank, self.lost()) if ulfm.is_loss(error) else error
