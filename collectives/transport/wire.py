"""Half precision on the wire: sums stay float32, messages carry 16 bits a number.

Written as a suffix of an algorithm's name: `C:bf16`, `auto:fp16`. Every hop rounds its partial sum once, to nearest
even, and the next one adds what it receives to its own float32 values, so P ranks in a chain round P - 1 times. The
rounding of an element depends on nothing but its value: what an algorithm promises of its bits (same for any chunk, for
a part or the whole, blocking or not) holds for it with a wire too. fp16 turns sums beyond 65504 into infinities.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from scaffe.collectives.planning.datatypes import OPS
from scaffe.collectives.transport.host_memory import private_empty
from scaffe.collectives.transport.transport import Message, Transport

ITEM_BYTES = 2


class WireTransport:
    """Messages of half-precision numbers from and into one float32 buffer in host memory, over another transport."""

    def __init__(self, inner: Transport, wire: str) -> None:
        """Serves one plan.

        Args:
            inner: carries the packed words.
            wire: "fp16" or "bf16".
        """
        from scaffe.collectives.transport import wire_kernels

        self._inner, self._kernels, self.tag = inner, wire_kernels, inner.tag
        self._is_bfloat16 = wire == "bf16"
        self._flat = np.empty(0, np.float32)
        self._packed = np.empty(0, np.uint16)

    def view(self, array: np.ndarray) -> np.ndarray:
        """See Transport. Memory of the packed form is touched only where messages are made from it."""
        self._flat = self._inner.view(array)
        self._packed = private_empty(array.size, np.uint16)
        return self._flat

    def address(self, array: np.ndarray) -> int:
        return self._inner.address(array)

    def scratch(self, slot: int, n_elems: int, like: np.ndarray) -> Any:
        return self._inner.scratch(slot, n_elems, self._packed)

    def sender(self, part: np.ndarray, peer: int) -> Message:
        """See Transport. The part is packed when the message starts."""
        packed = self._pack_of(part)
        pack = partial(self._kernels.pack, part, packed, self._is_bfloat16)
        return PackedMessage(self._inner.sender(packed, peer), pack)

    def receiver(self, part: np.ndarray, peer: int) -> Message:
        """See Transport. What comes into scratch stays packed, what comes into the buffer is unpacked."""
        if part.dtype == np.uint16:
            return self._inner.receiver(part, peer)
        packed = self._pack_of(part)
        return UnpackedMessage(self._inner.receiver(packed, peer),
                         partial(self._kernels.unpack, packed, part, self._is_bfloat16))

    def combiner(self, own: np.ndarray, received: np.ndarray, op: str) -> Callable[[], object]:
        """See Transport: `own` is float32, `received` packed."""
        return partial(self._kernels.combine, own, received, OPS.index(op), self._is_bfloat16)

    def _pack_of(self, part: np.ndarray) -> np.ndarray:
        start = (part.ctypes.data - self._flat.ctypes.data) // part.itemsize
        return self._packed[start : start + part.size]


class PackedMessage:
    """A message that is packed before it leaves."""

    def __init__(self, message: Message, pack: Callable[[], object]) -> None:
        self._start, self._pack = message.Start, pack
        self.Wait, self.Free = message.Wait, message.Free

    def Start(self) -> None:
        self._pack()
        self._start()


class UnpackedMessage:
    """A message that is unpacked when it has come."""

    def __init__(self, message: Message, unpack: Callable[[], object]) -> None:
        self._wait, self._unpack = message.Wait, unpack
        self.Start, self.Free = message.Start, message.Free

    def Wait(self) -> None:
        self._wait()
        self._unpack()
