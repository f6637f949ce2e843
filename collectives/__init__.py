"""Collectives on very large buffers over MPI: planned by pure functions, run in pipelined chunks."""

from .communicator import Communicator
from .errors import CommError
from .request import Request

__all__ = ["CommError", "Communicator", "Request"]
