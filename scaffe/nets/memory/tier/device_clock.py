"""How long steps take on a device: by events, which the host waits for when somebody asks."""

from __future__ import annotations

from typing import Any

from scaffe.layers.kernels import device


class DeviceClock:
    """See Clock. Measures passes that run layer by layer, until somebody has asked: recordings have no steps."""

    def __init__(self) -> None:
        self._starts: dict[int, Any] = {}
        self._ends: dict[int, Any] = {}
        self._spans: dict[int, tuple[Any, Any]] = {}
        self._last: Any = None
        self._n_open = 0
        self._found: dict[int, float] | None = None

    @property
    def seconds(self) -> dict[int, float]:
        """See Clock. The host waits for the device at the first time."""
        if self._found is None:
            for _, end in self._spans.values():
                end.synchronize()
            elapsed = device.load().cuda.get_elapsed_time
            self._found = {step: elapsed(*span) / 1e3 for step, span in self._spans.items()}
            self._starts, self._ends, self._spans, self._last = {}, {}, {}, None
        return self._found

    def begin(self, step: int) -> None:
        """See Clock."""
        if self._found is None and not device.current_stream().is_capturing():
            self._last = _mark(self._starts, step)
            self._n_open += 1

    def end(self, step: int) -> None:
        """See Clock."""
        if self._found is None and self._n_open:
            self._n_open -= 1
            start, self._last = self._last, _mark(self._ends, step)
            self._spans[step] = start, self._last


def _mark(events: dict[int, Any], step: int) -> Any:
    if step not in events:
        events[step] = device.load().cuda.Event()
    events[step].record(device.current_stream())
    return events[step]
