"""Transports of device memory: straight through a CUDA-aware MPI, or staged through pinned host memory.

Plans and executor are those of host memory; see `message` for how messages follow the device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.kernels import kernels
from scaffe.collectives.cuda.messages.message import DeviceMessage, StartQueues
from scaffe.collectives.cuda.messages.staging import ForwardedSend, ReceiveBuffer, SendBuffer, StagedReceive, StagedSend
from scaffe.collectives.cuda.streams import Span, Streams
from scaffe.collectives.runtime.engine import RECEIVES_AHEAD
from scaffe.collectives.transport.transport import TAG
from scaffe.collectives.transport.wire import WORD, WireTransport

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


STAGED_SENDS, STAGED_RECEIVES = 2, 16
"""Pinned buffers: two per peer that is sent to, so that one is filled while the other leaves; for receives twice as
many as the executor posts ahead, so that some are copied to the device or forwarded while the next are filled."""


class AwareTransport:
    """Device memory through a CUDA-aware MPI (see transport.Transport)."""

    def __init__(self, comm: Intracomm, streams: Streams, backs_off: bool) -> None:
        """``comm``: all of its point-to-point messages are ours."""
        from mpi4py import MPI

        self._comm, self._from_address, self._byte = comm, MPI.buffer.fromaddress, MPI.BYTE
        self.tag = TAG
        self._queues = StartQueues(streams, backs_off)
        self._memory: dict[tuple[object, ...], Any] = {}

    def address(self, array: Any) -> int:
        address: int = array.data.ptr
        return address

    def view(self, array: Any) -> Span:
        return Span(array.data.ptr, array.size, array.dtype)

    def scratch(self, slot: int, n_elems: int, like: Any) -> Span:
        """See Transport. In device memory."""
        key = (slot, _rounded(n_elems * like.itemsize))
        if key not in self._memory:
            self._memory[key] = device.load().empty(key[1], np.uint8)
        return Span(self._memory[key].data.ptr, n_elems, like.dtype)

    def sender(self, part: Span, peer: int) -> DeviceMessage:
        return DeviceMessage(self._queues, "send", peer, self._request(self._comm.Send_init, part, peer))

    def receiver(self, part: Span, peer: int) -> DeviceMessage:
        return DeviceMessage(self._queues, "receive", peer, self._request(self._comm.Recv_init, part, peer))

    def combiner(self, own: Span, received: Span, op: str) -> Callable[[], object]:
        """See Transport. Queues a kernel."""
        return kernels().elementwise(f"combine_{own.dtype.name}_{op}", own, received)

    def _request(self, make: Callable[..., Any], part: Span, peer: int) -> Any:
        return make([self._from_address(part.address, part.nbytes), part.nbytes, self._byte], peer, self.tag)


class StagedTransport(AwareTransport):
    """Device memory through pinned host memory and any MPI.

    A send's values are copied to one of its peer's two pinned buffers while the message before leaves from the other.
    What was received is copied to the device before it is summed: so copy engines wait for PCI Express, where a kernel
    that reads pinned memory would keep multiprocessors from computing. What a plan forwards unchanged is sent from the
    buffer in which it was received.
    """

    def __init__(self, comm: Intracomm, streams: Streams, backs_off: bool) -> None:
        super().__init__(comm, streams, backs_off)
        self._n_sends: defaultdict[int, int] = defaultdict(int)
        self._n_receives = 0
        self._send_buffers: dict[tuple[int, int, int], SendBuffer] = {}
        self._receive_buffers: dict[tuple[int, int], ReceiveBuffer] = {}
        self._whole = Span(0, 0, np.dtype(np.uint8))
        self._received: dict[Span, tuple[int, ReceiveBuffer]] = {}

    def view(self, array: Any) -> Span:
        """See Transport. Begins a plan: nothing has been received yet."""
        self._whole = super().view(array)
        self._received = {}
        return self._whole

    def sender(self, part: Span, peer: int) -> DeviceMessage:
        number, held = self._received.get(part, (0, None))
        if held is not None and self._n_receives - number < RECEIVES_AHEAD:
            request = self._request(self._comm.Send_init, _of(held, part), peer)
            return ForwardedSend(self._queues, peer, request, held)
        buffer = self._send_buffer(peer, part)
        request = self._request(self._comm.Send_init, buffer.memory[: part.nbytes], peer)
        return StagedSend(self._queues, peer, request, part, buffer)

    def receiver(self, part: Span, peer: int) -> DeviceMessage:
        self._overwrites(part)
        self._n_receives += 1
        buffer = self._receive_buffer(part)
        if self._whole.holds(part):  # not scratch, nor a wire's packed words: the transport does not see those change
            self._received[part] = self._n_receives, buffer
        request = self._request(self._comm.Recv_init, _of(buffer, part), peer)
        return StagedReceive(self._queues, peer, request, part, buffer)

    def combiner(self, own: Span, received: Span, op: str) -> Callable[[], object]:
        self._overwrites(own)
        return super().combiner(own, received, op)

    def _overwrites(self, part: Span) -> None:
        """Forgets what was received into `part`: it cannot be forwarded any more. So is what was received long ago,
        whose buffer is about to be reused."""
        self._received = {other: (number, buffer) for other, (number, buffer) in self._received.items()
                          if self._n_receives - number < RECEIVES_AHEAD and not other.overlaps(part)}

    def _send_buffer(self, peer: int, part: Span) -> SendBuffer:
        """The next of the buffers for this peer and length, in turn."""
        n_bytes = _rounded(part.nbytes)
        self._n_sends[peer] += 1
        key = (peer, self._n_sends[peer] % STAGED_SENDS, n_bytes)
        if key not in self._send_buffers:
            self._send_buffers[key] = SendBuffer(self._pinned("send", key, n_bytes))
        return self._send_buffers[key]

    def _receive_buffer(self, part: Span) -> ReceiveBuffer:
        """The next of the buffers for this length, in turn. The receive RECEIVES_AHEAD later is posted when this one
        has been waited for, at the earliest; the one that reuses its buffer comes twice as late."""
        n_bytes = _rounded(part.nbytes)
        key = (self._n_receives % STAGED_RECEIVES, n_bytes)
        if key not in self._receive_buffers:
            self._receive_buffers[key] = ReceiveBuffer(self._pinned("receive", key, n_bytes))
        return self._receive_buffers[key]

    def _pinned(self, use: str, which: object, n_bytes: int) -> Span:
        memory = self._memory[use, which] = device.pinned(n_bytes)
        return Span(memory.ctypes.data, n_bytes, np.dtype(np.uint8))


def _of(buffer: ReceiveBuffer, part: Span) -> Span:
    return buffer.memory[: part.nbytes]


def _rounded(n_bytes: int) -> int:
    """Rounds up to a power of two, so that plans with similar chunks share memory."""
    return 1 << max(n_bytes - 1, 4095).bit_length()


class DeviceWire(WireTransport):
    """On device memory: kernels on the communication stream pack and unpack, when a message starts or has come."""

    def _place(self, part: Span) -> int:
        return part.address

    def _words(self, n_elems: int) -> Span:
        self._memory = device.load().empty(n_elems, np.uint16)
        return Span(self._memory.data.ptr, n_elems, WORD)

    def _kernel(self, name: str, target: Span, source: Span, op: str = "") -> Callable[[], object]:
        return kernels().elementwise(f"{name}_{self._wire}" + (f"_{op}" if op else ""), target, source)
