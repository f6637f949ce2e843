"""How a slice of a buffer becomes a message: here for host memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from scaffe.collectives.planning.datatypes import OPS
from scaffe.collectives.transport.memory import private_empty
from scaffe.collectives.transport.polling import PollBackoff, PolledMessage

TAG = 77


class Message(Protocol):
    """A message that can be sent or received again and again without setting it up anew."""

    def Start(self) -> None:
        """Begins to send or receive."""

    def Wait(self) -> object:
        """Returns when the slice has left or has been filled; other threads run meanwhile."""

    def Free(self) -> None:
        """Gives its resources back."""


class Transport(Protocol):
    """Makes messages from slices of one kind of memory, and sums there.

    Attributes:
        tag: what the messages made from now on carry; messages of different tags never meet.
    """

    tag: int

    def address(self, array: Any) -> int:
        """The address of the array's first byte, which tells apart arrays that are alike."""

    def view(self, array: Any) -> Any:
        """Views the array's memory as a flat array that does not keep it alive."""

    def scratch(self, slot: int, n_elems: int, like: Any) -> Any:
        """Gives memory for what is received before it is summed.

        Args:
            slot: plans that do not run at the same time share a slot's memory.
            n_elems: its length.
            like: an array of the same memory and dtype.
        """

    def sender(self, part: Any, peer: int) -> Message:
        """Makes a message of the slice `part` to rank `peer`."""

    def receiver(self, part: Any, peer: int) -> Message:
        """Makes a message from rank `peer` into the slice `part`."""

    def combiner(self, own: Any, received: Any, op: str) -> Callable[[], object]:
        """Makes a call that sets own = own `op` received, elementwise."""


class HostTransport:
    """Host memory through any MPI: persistent point-to-point messages of bytes."""

    def __init__(self, comm: Any, backs_off: bool = False) -> None:
        """Args:
            comm: mpi4py communicator whose point-to-point messages are all ours.
            backs_off: waiting sleeps between polls and leaves the core to whoever computes; MPI itself busy-polls.
        """
        from mpi4py import MPI

        self._comm, self._from_address, self._byte = comm, MPI.buffer.fromaddress, MPI.BYTE
        self.tag = TAG
        self._backoff = PollBackoff() if backs_off else None
        self._scratch: dict[tuple[int, int], np.ndarray] = {}

    def address(self, array: np.ndarray) -> int:
        """See Transport."""
        return array.ctypes.data

    def view(self, array: np.ndarray) -> np.ndarray:
        """See Transport."""
        return np.frombuffer(memoryview(self._from_address(array.ctypes.data, array.nbytes)), array.dtype)  # type: ignore[arg-type]

    def scratch(self, slot: int, n_elems: int, like: np.ndarray) -> np.ndarray:
        """See Transport."""
        n_bytes = 1 << max(n_elems * like.itemsize - 1, 4095).bit_length()
        if (slot, n_bytes) not in self._scratch:
            self._scratch[slot, n_bytes] = private_empty(n_bytes, np.uint8)
        return self._scratch[slot, n_bytes].view(like.dtype)

    def sender(self, part: np.ndarray, peer: int) -> Message:
        """See Transport."""
        return self._message(self._comm.Send_init([part, part.nbytes, self._byte], peer, self.tag))

    def receiver(self, part: np.ndarray, peer: int) -> Message:
        """See Transport."""
        return self._message(self._comm.Recv_init([part, part.nbytes, self._byte], peer, self.tag))

    def combiner(self, own: np.ndarray, received: np.ndarray, op: str) -> Callable[[], object]:
        """See Transport."""
        from scaffe.collectives.shared.kernels import bits, combine2

        return partial(combine2, bits(own), bits(received), bits(own), OPS.index(op))

    def _message(self, request: Any) -> Message:
        return request if self._backoff is None else PolledMessage(request, self._backoff)
