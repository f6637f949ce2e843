"""Messages of device memory through pinned host memory, for an MPI that takes no other.

What a rank only forwards is sent on from the pinned buffer in which it was received: the device takes no part.
"""

from __future__ import annotations

from typing import Any

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.messages.message import DeviceMessage, StartQueues
from scaffe.collectives.cuda.streams import Span

DEVICE_TO_HOST, HOST_TO_DEVICE = 2, 1  # cudaMemcpyKind


class SendBuffer:
    """A pinned buffer that staged sends to one peer share."""

    def __init__(self, memory: Span) -> None:
        self.memory = memory
        self._request: Any = None
        self._is_started = True

    def take(self, request: Any) -> None:
        self._request, self._is_started = request, False

    def started(self) -> None:
        self._is_started = True

    def is_free(self) -> bool:
        """Whether the last message has left."""
        return self._request is None or (self._is_started and bool(self._request.Test()))


class ReceiveBuffer:
    """A pinned buffer that staged receives share, with the messages that forward what it holds."""

    def __init__(self, memory: Span) -> None:
        self.memory = memory
        self._forwarded: list[DeviceMessage] = []

    def hold(self, message: DeviceMessage) -> None:
        """Keeps the buffer's content until `message` has been sent."""
        self._forwarded.append(message)

    def is_free(self) -> bool:
        """Whether all messages that forward its content have left."""
        self._forwarded = [message for message in self._forwarded if not message.is_complete()]
        return not self._forwarded


class StagedSend(DeviceMessage):
    """A send from a pinned buffer: once that is free, the values are copied there on the copy stream."""

    def __init__(self, queues: StartQueues, peer: int, request: Any, part: Span, buffer: SendBuffer) -> None:
        self._copies = queues.of("copy", peer)  # created before the queue of sends, and so looked at before it
        super().__init__(queues, "send", peer, request)
        self._part, self._buffer = part, buffer
        self._copied = queues.streams.event()
        self._memcpy = device.load().cuda.runtime.memcpyAsync

    def _enqueue(self) -> None:
        self._copies.put(self._buffer.is_free, self._copy)

    def _copy(self) -> None:
        self._buffer.take(self._request)
        stream = self._queues.streams.copy
        self._ready.hold(stream)
        self._memcpy(self._buffer.memory.address, self._part.address, self._part.nbytes, DEVICE_TO_HOST, stream.ptr)
        self._copied.mark(stream)
        self._queue.put(self._copied.is_reached, self._start)

    def _start(self) -> None:
        super()._start()
        self._buffer.started()


class StagedReceive(DeviceMessage):
    """A receive into a pinned buffer, from where the communication stream copies it to the device."""

    def __init__(self, queues: StartQueues, peer: int, request: Any, part: Span, buffer: ReceiveBuffer) -> None:
        super().__init__(queues, "receive", peer, request)
        self._part, self._buffer = part, buffer
        self._memcpy = device.load().cuda.runtime.memcpyAsync

    def Wait(self) -> None:
        """Returns when the message has come and its copy to the device is queued."""
        super().Wait()
        stream, memory = self._queues.streams.comm, self._buffer.memory
        self._memcpy(self._part.address, memory.address, self._part.nbytes, HOST_TO_DEVICE, stream.ptr)

    def _enqueue(self) -> None:
        self._queue.put(self._may_start, self._start)

    def _may_start(self) -> bool:
        return self._buffer.is_free() and self._ready.is_reached()


class ForwardedSend(DeviceMessage):
    """A send of what a staged receive, already waited for, brought: straight from its pinned buffer."""

    def __init__(self, queues: StartQueues, peer: int, request: Any, buffer: ReceiveBuffer) -> None:
        self._copies = queues.of("copy", peer)  # as above
        super().__init__(queues, "send", peer, request)
        self._buffer = buffer

    def Start(self) -> None:
        """Queues the message behind earlier ones to the same peer; it waits for nothing on the device."""
        self._is_started = False
        self._buffer.hold(self)
        self._copies.put(_at_once, lambda: self._queue.put(_at_once, self._start))
        self._queues.progress()


def _at_once() -> bool:
    return True
