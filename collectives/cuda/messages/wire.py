"""Half precision on the wire for float32 buffers in device memory: kernels pack and sum (see transport.wire)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.kernels import kernels
from scaffe.collectives.cuda.span import Span
from scaffe.collectives.transport.transport import Message, Transport
from scaffe.collectives.transport.wire import PackedMessage, UnpackedMessage

WORD = np.dtype(np.uint16)


class DeviceWire:
    """Messages of half-precision numbers from and into one float32 buffer, over another transport of device memory."""

    def __init__(self, inner: Transport, wire: str) -> None:
        """Args:
            inner: carries the packed words.
            wire: fp16 or bf16.

        One object serves one plan.
        """
        self._inner, self._wire, self.tag = inner, wire, inner.tag
        self._flat = self._packed = Span(0, 0, WORD)
        self._memory: Any = None

    def address(self, array: Any) -> int:
        """See Transport."""
        return self._inner.address(array)

    def view(self, array: Any) -> Span:
        """See Transport."""
        self._flat = self._inner.view(array)
        self._memory = device.load().empty(array.size, np.uint16)
        self._packed = Span(self._memory.data.ptr, array.size, WORD)
        return self._flat

    def scratch(self, slot: int, n_elems: int, like: Any) -> Any:
        """See Transport."""
        return self._inner.scratch(slot, n_elems, self._packed)

    def sender(self, part: Span, peer: int) -> Message:
        """See Transport. The part is packed on the communication stream when the message starts."""
        packed = self._pack_of(part)
        pack = kernels().elementwise(f"pack_{self._wire}", packed, part)
        return PackedMessage(self._inner.sender(packed, peer), pack)

    def receiver(self, part: Span, peer: int) -> Message:
        """See Transport. What is received into scratch stays packed, what is received into the buffer is unpacked."""
        if part.dtype == WORD:
            return self._inner.receiver(part, peer)
        packed = self._pack_of(part)
        return UnpackedMessage(self._inner.receiver(packed, peer),
                               kernels().elementwise(f"unpack_{self._wire}", part, packed))

    def combiner(self, own: Span, received: Span, op: str) -> Callable[[], object]:
        """See Transport: `own` is float32, `received` packed."""
        return kernels().elementwise(f"combine_{self._wire}_{op}", own, received)

    def _pack_of(self, part: Span) -> Span:
        start = (part.address - self._flat.address) // part.itemsize
        return self._packed[start : start + part.size]
