"""Transports make messages of slices of memory; the helper thread's messages sleep between polls."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from scaffe.collectives.planning.datatypes import OPS
from scaffe.collectives.transport.host_memory import private_empty

FIRST_INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS = 50e-6, 2e-3
LEAST_SLEEP_SECONDS = 25e-6  # a shorter sleep takes longer than asked for (Linux's timer slack is 50 us)
SHARE_OF_TIME = 1 / 16
MESSAGES_PER_INTERVAL = 4  # half of what the executor posts ahead: the link stays busy while this thread sleeps


class PollBackoff:
    """How long the helper thread sleeps between polls.

    A poll costs some 10 us of the core that computes, so there should be few; but an interval is not longer than a
    sixteenth of what the collective has taken so far (or 50 us), nor than four of its messages took.
    """

    def __init__(self) -> None:
        self._n_open = self._n_done = 0
        self._since = 0.0

    def start(self) -> None:
        """A message starts; the first one after all others are done begins another collective."""
        if self._n_open == 0:
            self._n_done, self._since = 0, time.perf_counter()
        self._n_open += 1

    def done(self) -> None:
        self._n_open -= 1
        self._n_done += 1

    def seconds(self) -> float:
        """How long to sleep before the next poll; 0 only yields to other threads."""
        elapsed = time.perf_counter() - self._since
        wanted = min(max(elapsed * SHARE_OF_TIME, FIRST_INTERVAL_SECONDS), LONGEST_INTERVAL_SECONDS)
        interval = min(wanted, elapsed * min(1, MESSAGES_PER_INTERVAL / (self._n_done + 1)))
        return interval if interval > LEAST_SLEEP_SECONDS else 0.0


class PolledMessage:
    """A persistent MPI request whose Wait sleeps between polls."""

    def __init__(self, request: Any, backoff: PollBackoff) -> None:
        """``backoff``: shared by all messages of a thread."""
        self.Free = request.Free
        self._start, self._test, self._backoff = request.Start, request.Test, backoff

    def Start(self) -> None:
        self._backoff.start()
        self._start()

    def Wait(self) -> None:
        while not self._test():
            time.sleep(self._backoff.seconds())
        self._backoff.done()


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
    """Makes messages from slices of one kind of memory, and sums there. ``tag``: what the messages made from now on
    carry; messages of different tags never meet."""

    tag: int

    def address(self, array: Any) -> int:
        """The address of the array's first byte, which tells apart arrays that are alike."""

    def view(self, array: Any) -> Any:
        """Views the array's memory as a flat array that does not keep it alive."""

    def scratch(self, slot: int, n_elems: int, like: Any) -> Any:
        """Gives memory for what is received before it is summed. ``slot``: plans that do not run at the same time share
        a slot's memory; ``like``: an array of the same memory and dtype."""

    def sender(self, part: Any, peer: int) -> Message:
        """Makes a message of the slice `part` to rank `peer`."""

    def receiver(self, part: Any, peer: int) -> Message:
        """Makes a message from rank `peer` into the slice `part`."""

    def combiner(self, own: Any, received: Any, op: str) -> Callable[[], object]:
        """Makes a call that sets own = own `op` received, elementwise."""


class HostTransport:
    """Host memory through any MPI: persistent point-to-point messages of bytes."""

    def __init__(self, comm: Any, backs_off: bool = False) -> None:
        """``comm``: mpi4py communicator whose point-to-point messages are all ours; ``backs_off``: waiting sleeps
        between polls and leaves the core to whoever computes; MPI itself busy-polls."""
        from mpi4py import MPI

        self._comm, self._from_address, self._byte = comm, MPI.buffer.fromaddress, MPI.BYTE
        self.tag = TAG
        self._backoff = PollBackoff() if backs_off else None
        self._scratch: dict[tuple[int, int], np.ndarray] = {}

    def address(self, array: np.ndarray) -> int:
        return array.ctypes.data

    def view(self, array: np.ndarray) -> np.ndarray:
        return np.frombuffer(memoryview(self._from_address(array.ctypes.data, array.nbytes)), array.dtype)  # type: ignore[arg-type]

    def scratch(self, slot: int, n_elems: int, like: np.ndarray) -> np.ndarray:
        n_bytes = 1 << max(n_elems * like.itemsize - 1, 4095).bit_length()
        if (slot, n_bytes) not in self._scratch:
            self._scratch[slot, n_bytes] = private_empty(n_bytes, np.uint8)
        return self._scratch[slot, n_bytes].view(like.dtype)

    def sender(self, part: np.ndarray, peer: int) -> Message:
        return self._message(self._comm.Send_init([part, part.nbytes, self._byte], peer, self.tag))

    def receiver(self, part: np.ndarray, peer: int) -> Message:
        return self._message(self._comm.Recv_init([part, part.nbytes, self._byte], peer, self.tag))

    def combiner(self, own: np.ndarray, received: np.ndarray, op: str) -> Callable[[], object]:
        from scaffe.collectives.shared.kernels import bits, combine2

        return partial(combine2, bits(own), bits(received), bits(own), OPS.index(op))

    def _message(self, request: Any) -> Message:
        return request if self._backoff is None else PolledMessage(request, self._backoff)
