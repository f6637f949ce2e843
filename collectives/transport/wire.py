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
WORD = np.dtype(np.uint16)


class WireTransport:
    """Messages of half-precision numbers from and into one float32 buffer, over another transport of its memory.

    This one is for host memory; that of device memory derives from it.
    """

    def __init__(self, inner: Transport, wire: str) -> None:
        """Serves one plan. ``inner``: carries the packed words; ``wire``: "fp16" or "bf16"."""
        self._inner, self._wire, self.tag = inner, wire, inner.tag
        self._flat: Any = None
        self._packed: Any = None

    def address(self, array: Any) -> int:
        return self._inner.address(array)

    def view(self, array: Any) -> Any:
        """See Transport. Memory of the packed form is touched only where messages are made from it."""
        self._flat, self._packed = self._inner.view(array), self._words(array.size)
        return self._flat

    def scratch(self, slot: int, n_elems: int, like: Any) -> Any:
        return self._inner.scratch(slot, n_elems, self._packed)

    def sender(self, part: Any, peer: int) -> Message:
        """See Transport. The part is packed when the message starts."""
        packed = self._pack_of(part)
        return Converted(self._inner.sender(packed, peer), before_start=self._kernel("pack", packed, part))

    def receiver(self, part: Any, peer: int) -> Message:
        """See Transport. What comes into scratch stays packed, what comes into the buffer is unpacked."""
        if part.dtype == WORD:
            return self._inner.receiver(part, peer)
        packed = self._pack_of(part)
        return Converted(self._inner.receiver(packed, peer), after_wait=self._kernel("unpack", part, packed))

    def combiner(self, own: Any, received: Any, op: str) -> Callable[[], object]:
        """See Transport: `own` is float32, `received` packed."""
        return self._kernel("combine", own, received, op)

    def _pack_of(self, part: Any) -> Any:
        start = (self._place(part) - self._place(self._flat)) // part.itemsize
        return self._packed[start : start + part.size]

    def _place(self, part: Any) -> int:
        """The address of a slice of what `view` has given."""
        place: int = part.ctypes.data
        return place

    def _words(self, n_elems: int) -> Any:
        return private_empty(n_elems, np.uint16)

    def _kernel(self, name: str, target: Any, source: Any, op: str = "") -> Callable[[], object]:
        from scaffe.collectives.transport import wire_kernels

        numbers = (target, source, OPS.index(op)) if op else (source, target)
        return partial(getattr(wire_kernels, name), *numbers, self._wire == "bf16")


class Converted:
    """A message that is packed before it leaves, or unpacked when it has come."""

    def __init__(self, message: Message, before_start: Callable[[], object] | None = None,
                 after_wait: Callable[[], object] | None = None) -> None:
        self.Start, self.Wait, self.Free = message.Start, message.Wait, message.Free
        if before_start is not None:
            self.Start = partial(_in_turn, before_start, message.Start)
        if after_wait is not None:
            self.Wait = partial(_in_turn, message.Wait, after_wait)


def _in_turn(first: Callable[[], object], then: Callable[[], object]) -> None:
    first()
    then()
