"""How long a device computes each step, measured by events on its stream, also within recordings of passes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from scaffe.errors import LayerError
from scaffe.layers.kernels import device


class DeviceClock:
    """See Clock. Until somebody has asked for the times, steps are measured; afterwards recordings have no events in
    them. What a recording measures, each time it is launched, counts more than what its steps took one by one: between
    these the device waits for the host.
    """

    def __init__(self) -> None:
        self._events: dict[tuple[bool, bool, int], Any] = {}  # by whether in a recording, whether an end, and step
        self._spans: dict[tuple[bool, int], tuple[Any, Any]] = {}
        self._last: Any = None
        self._n_open = 0
        self._in_recording = False  # whether those that have begun are
        self._found: dict[int, float] | None = None

    @property
    def seconds(self) -> dict[int, float]:
        """See Clock. The host waits for the device at the first time."""
        if self._found is None:
            device.current_stream().synchronize()
            elapsed, self._found = device.load().cuda.get_elapsed_time, {}
            for in_recording, step in sorted(self._spans):  # what recordings measured comes last, and stays
                with suppress(Exception):  # CUDA's, of a recording that could not be made, and never ran
                    self._found[step] = float(elapsed(*self._spans[in_recording, step])) / 1e3
            self._events, self._spans, self._last = {}, {}, None
        return self._found

    def begin(self, step: int) -> None:
        if self._found is None:
            in_recording = device.current_stream().is_capturing()
            if in_recording != self._in_recording:
                self._in_recording, self._n_open = in_recording, 0
            self._last = self._mark(False, step)
            self._n_open += self._last is not None

    def end(self, step: int) -> None:
        if self._found is None and self._n_open and device.current_stream().is_capturing() == self._in_recording:
            self._n_open -= 1
            start, self._last = self._last, self._mark(True, step)
            self._spans[self._in_recording, step] = start, self._last

    def _mark(self, is_end: bool, step: int) -> Any:
        """An event behind all that was queued; None where recordings cannot record any."""
        key = self._in_recording, is_end, step
        if key not in self._events:
            self._events[key] = device.load().cuda.Event()
        event, stream = self._events[key], device.current_stream()
        if not self._in_recording:
            event.record(stream)
            return event
        try:
            device.record_at_launch(event, stream)
        except LayerError:
            return None
        return event
