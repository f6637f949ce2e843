"""CUDA graphs: work captured once and launched many times, with one call each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import arena

AHEAD_BYTES = 1 << 20
LEAST_BYTES = AHEAD_BYTES // 4  # more than the losses and their sums that a pass makes


class Recording:
    """The work that ``run`` queues on the current stream, captured without executing it. Calling this launches it.

    Memory allocated while recording comes from a pool of the device's recordings, which gives none of it to others,
    since every launch writes there. They share it, since they run one after another on one stream: what ``result`` has
    is read before another one is launched. What the host computes or decides inside ``run`` is fixed at recording.

    Args:
        run: queues work; must not make the host wait.

    Attributes:
        result: what ``run`` returned; arrays hold the newest launch's values.

    Raises:
        Exception: what ``run`` raises, or CUDA's error for work that cannot be captured. The capture is then ended.
    """

    def __init__(self, run: Callable[[], Any]) -> None:
        cupy = device.load()
        arena.pin()
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
