"""Where a run's time goes: seconds by activity, and what a helper thread did meanwhile.

What this process compiles meanwhile, in whatever thread, counts as "compiling" and not as the activity that needs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scaffe.jit.clock import compiling_seconds

COMPILING = "compiling"
MAIN, HELPER = "main", "helper"
Record = Callable[[str, str, float, float], None]


class Timers:
    """Seconds spent so far under each name, nested names not counted twice.

    Attributes:
        seconds: by name.
        behind: seconds of communication that the helper thread carried.
        waited: seconds that the main thread stood waiting for it.
        record: called with each activity's thread, label, start and end (perf_counter); None: nobody records.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.behind = self.waited = 0.0
        self.record: Record | None = None
        self._inner: list[list[float]] = []  # by open activity: seconds of activities inside, and of compiling there

    def clear(self) -> None:
        """Begin to count anew."""
        self.seconds.clear()
        self.behind = self.waited = 0.0

    @contextmanager
    def __call__(self, name: str, label: str = "") -> Iterator[None]:
        """Count the time of a with-block under the name; a record shows it by the label."""
        started = time.perf_counter()
        self._inner.append([0.0, 0.0])
        try:
            yield
        finally:
            ended = time.perf_counter()
            if self.record is not None:
                self.record(MAIN, label or name, started, ended)
            self._count(name, ended - started, compiling_seconds(started, ended))

    def _count(self, name: str, elapsed: float, compiling: float) -> None:
        """Close the innermost activity."""
        inner_elapsed, inner_compiling = self._inner.pop()
        own_compiling = compiling - inner_compiling
        self._add(name, elapsed - inner_elapsed - own_compiling)
        if own_compiling:
            self._add(COMPILING, own_compiling)
        if self._inner:
            self._inner[-1][0] += elapsed
            self._inner[-1][1] += compiling

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @contextmanager
    def forward(self, net: Any) -> Iterator[None]:
        """Count a forward pass, with the time in layers that bring data under "data"."""
        before = net.data_seconds
        with self("forward"):
            yield
        waited = net.data_seconds - before  # without compiling, as everything here
        self.seconds["data"] = self.seconds.get("data", 0.0) + waited
        self.seconds["forward"] -= waited

    def carried(self, label: str, started: float, ended: float, waited: float) -> None:
        """Count a collective that the helper thread carried.

        Args:
            label: what a timeline calls it.
            started, ended: of ``time.perf_counter()``, in seconds.
            waited: seconds that the main thread waited for it, without compiling.
        """
        self.behind += ended - started - compiling_seconds(started, ended)
        self.waited += waited
        if self.record is not None:
            self.record(HELPER, label, started, ended)

    def hidden(self) -> tuple[float, float]:
        """Seconds of communication in all, and the share of them that computing covered."""
        total = self.behind + self.seconds.get("communication", 0.0) - self.waited
        covered = max(self.behind - self.waited, 0.0)
        return total, covered / total if total > 0 else 0.0

    def shares(self, total_seconds: float) -> dict[str, float]:
        """Each name's part of a total, most first."""
        ranked = sorted(self.seconds.items(), key=lambda item: -item[1])
        return {name: seconds / total_seconds for name, seconds in ranked} if total_seconds else {}
