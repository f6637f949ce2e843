"""Scratch memory on the device, shared by all plans, since they run one after another on one stream; and CUDA graphs:
work captured once and launched many times, with one call each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels import device

ALIGN_BYTES = 256
SMALL_BYTES = 64 << 20  # where a pass would work in more, it computes some images at a time
Part = tuple[int | tuple[int, ...], Any]  # shape and type


class _Blocks:
    """The memory of one device: the newest block last; older ones if they are ``pinned``."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []
        self.pinned, self.n_bytes = False, 0


class Arena:
    """The scratch memory of the current device. It grows at a plan's first pass, or before (``reserve``), not while
    passes are captured: addresses in graphs stay."""

    def __init__(self) -> None:
        self._own = device.PerDevice(_Blocks)

    def reserve(self, *parts: Part) -> None:
        """Grow, if needed, to hold arrays of these (shape, dtype) at once."""
        self._grow(together(parts))

    @property
    def n_bytes(self) -> int:
        """The bytes of the current memory, without older memory that only captured graphs use."""
        return self._own().n_bytes

    def take(self, *parts: Part) -> list[Any]:
        """Arrays of these (shape, dtype); contents undefined, valid until the next ``take``."""
        block = self._grow(together(parts))
        taken, start = [], 0
        for shape, dtype in parts:
            n_bytes = prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
            taken.append(block[start:start + n_bytes].view(dtype).reshape(shape))
            start += together([(shape, dtype)])
        return taken

    def pin(self) -> None:
        """From now on keep the old memory when growing: captured graphs use its addresses."""
        self._own().pinned = True

    def forget(self) -> None:
        """Free the memory on all devices."""
        self._own.cache_clear()

    def _grow(self, n_bytes: int) -> Any:
        own = self._own()
        if n_bytes > own.n_bytes:
            own.n_bytes = n_bytes
            own.blocks = [*(own.blocks if own.pinned else []), device.load().empty(own.n_bytes, np.uint8)]
        return own.blocks[-1]


def together(parts: Iterable[Part]) -> int:
    """Bytes of the arena that arrays of these (shape, dtype) take at once."""
    n_bytes = (prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
               for shape, dtype in parts)
    return max(sum(-(-each // ALIGN_BYTES) * ALIGN_BYTES for each in n_bytes), ALIGN_BYTES)


arena = Arena()
results = Arena()  # of what ``deferred`` has yet to bring to its place


AHEAD_BYTES = 1 << 20
LEAST_BYTES = AHEAD_BYTES // 4  # more than the losses and their sums that a pass makes


class Recording:
    """The work that ``run`` queues on the current stream, captured without executing it; it must not make the host
    wait. Calling this launches it; the arrays of ``result``, what ``run`` returned, hold the newest launch's values.

    Memory allocated while recording comes from a pool of the device's recordings, which gives none of it to others,
    since every launch writes there. They share it, since they run one after another on one stream: what ``result`` has
    is read before another one is launched. What the host computes or decides inside ``run`` is fixed at recording.
    Raises what ``run`` raises, or CUDA's error for work that cannot be captured; the capture is then ended."""

    def __init__(self, run: Callable[[], Any]) -> None:
        cupy = device.load()
        for each in (arena, results):
            each.pin()
        pool = _pool()
        stream = cupy.cuda.get_current_stream()
        with cupy.cuda.using_allocator(pool.malloc):
            if pool.free_bytes() < LEAST_BYTES:
                pool.malloc(AHEAD_BYTES)  # given back at once: the pool has it, and CUDA is asked for none meanwhile
            # Relaxed: the helper thread may allocate and wait for its own events meanwhile.
            stream.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
            try:
                self.result = run()
            except BaseException:
                _abandon(stream)
                raise
            self._graph = stream.end_capture()

    def __call__(self) -> Any:
        """Launch on the current stream. Returns ``result``."""
        self._graph.launch(device.load().cuda.get_current_stream())
        return self.result


@device.PerDevice
def _pool() -> Any:
    return device.load().cuda.MemoryPool()


def _abandon(stream: Any) -> None:
    try:
        stream.end_capture()
    except Exception:  # the capture was invalidated already; what broke it is being raised
        return
