"""CUDA graphs: a stretch of work captured once and launched again and again with one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import arena


class Recording:
    """What ``run`` queues on the current stream, without running it: call the recording to launch it.

    Memory that is taken while recording comes from a pool of its own, which lives as long as the recording: replayed
    work writes there every time. Whatever the host decides inside ``run`` is decided once.

    Args:
        run: queues work; must not make the host wait.

    Attributes:
        result: what ``run`` returned; arrays hold the newest launch's values.

    Raises:
        what ``run`` raises, and CUDA's error for what cannot be captured; nothing is left half captured.
    """

    def __init__(self, run: Callable[[], Any]) -> None:
        cupy = device.load()
        arena.pin()
        self._pool = cupy.cuda.MemoryPool()
        stream = cupy.cuda.get_current_stream()
        with cupy.cuda.using_allocator(self._pool.malloc):
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


def _abandon(stream: Any) -> None:
    try:
        stream.end_capture()
    except Exception:  # the capture was invalidated already; what broke it is being raised
        return
