"""Where a run's time goes: seconds per activity of the main thread, and the helper thread's communication.

Time that any thread of this process spends compiling counts as "compiling", not as the activity that needed it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from scaffe.collectives.request import Request
from scaffe.jit.cache import compiling_seconds

COMPILING = "compiling"
MAIN, HELPER = "main", "helper"
Record = Callable[[str, str, float, float], None]


@dataclass
class Span:
    """A with-block that is timed; ``label``: what a timeline calls it."""

    label: str


class Timers:
    """Seconds spent so far in each activity. An activity inside another is subtracted from the outer one.

    Attributes:
        seconds: activity's name → seconds.
        behind: seconds of communication that the helper thread carried out.
        waited: seconds that the main thread waited for the helper thread.
        record: called after each activity with its thread, label, start and end (``time.perf_counter()``, in seconds);
            None where nothing is recorded.
        span: label → a with-block around an activity, for profilers.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.behind = self.waited = 0.0
        self.record: Record | None = None
        self.span: Callable[[str], AbstractContextManager[Any]] = nullcontext
        self._inner: list[list[float]] = []  # by open activity: seconds of activities inside, and of compiling there

    def clear(self) -> None:
        self.seconds.clear()
        self.behind = self.waited = 0.0

    @contextmanager
    def __call__(self, name: str, label: str = "") -> Iterator[Span]:
        """Count the time of a with-block.

        Args:
            label: what ``record`` gets instead of the name.

        Yields:
            the span, whose label the block may change.
        """
        span, started = Span(label or name), time.perf_counter()
        self._inner.append([0.0, 0.0])
        try:
            with self.span(span.label):
                yield span
        finally:
            ended = time.perf_counter()
            if self.record is not None:
                self.record(MAIN, span.label, started, ended)
            self._count(name, ended - started, compiling_seconds(started, ended))

    def _count(self, name: str, elapsed: float, compiling: float) -> None:
        inner_elapsed, inner_compiling = self._inner.pop()
        own_compiling = compiling - inner_compiling
        self.seconds[name] += elapsed - inner_elapsed - own_compiling
        if own_compiling:
            self.seconds[COMPILING] += own_compiling
        if self._inner:
            self._inner[-1][0] += elapsed
            self._inner[-1][1] += compiling

    @contextmanager
    def forward(self, net: Any) -> Iterator[None]:
        """Count a with-block that runs a net's forward: its data layers as "data", the rest as "forward"."""
        before = net.data_seconds
        with self("forward"):
            yield
        waited = net.data_seconds - before  # without compiling, as everything here
        self.seconds["data"] += waited
        self.seconds["forward"] -= waited

    def wait(self, request: Request, label: str) -> None:
        """Wait for a collective that the helper thread carries out, and count it.
        ``label``: its name in a timeline."""
        waited = 0.0
        if request.test():
            request.wait()  # costs nothing, and on a device what is queued from here on follows the result
        else:
            started = time.perf_counter()
            with self("communication", f"wait {label}"):
                request.wait()
            ended = time.perf_counter()
            waited = ended - started - compiling_seconds(started, ended)
        self.carried(label, request.started or request.ended, request.ended, waited)

    def carried(self, label: str, started: float, ended: float, waited: float) -> None:
        """Count a collective that the helper thread carried out.

        Args:
            started, ended: values of ``time.perf_counter()``, in seconds.
            waited: seconds that the main thread waited for it, compiling left out.
        """
        self.behind += ended - started - compiling_seconds(started, ended)
        self.waited += waited
        if self.record is not None:
            self.record(HELPER, label, started, ended)

    def hidden(self) -> tuple[float, float]:
        """Communication in all, in seconds, and the fraction of it (0 to 1) that was hidden behind computing."""
        total = self.behind + self.seconds.get("communication", 0.0) - self.waited
        covered = max(self.behind - self.waited, 0.0)
        return total, covered / total if total > 0 else 0.0

    def shares(self, total_seconds: float) -> dict[str, float]:
        """Each activity's fraction of a total in seconds, largest first; empty if the total is 0."""
        ranked = sorted(self.seconds.items(), key=lambda item: -item[1])
        return {name: seconds / total_seconds for name, seconds in ranked} if total_seconds else {}
