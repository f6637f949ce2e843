"""Collectives on very large buffers over MPI: planned by pure functions, run in pipelined chunks."""

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError, RankLost
from scaffe.collectives.request import Request

__all__ = ["CommError", "Communicator", "RankLost", "Request"]
