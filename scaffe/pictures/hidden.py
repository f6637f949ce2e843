"""How much of a rank's communication ran while its main thread computed, from a trace's spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

COMPUTING = {"forward", "backward", "data", "update", "test", "snapshot", "compiling"}
"""What the main thread does beside communication; all else that it has spans of is communication, or waiting for it."""
WAIT = "wait"
Interval = tuple[float, float]


@dataclass(frozen=True)
class Hidden:
    """Communication of one rank.

    Attributes:
        total: milliseconds in which it communicated, by either thread.
        behind: of these, the milliseconds in which the main thread computed.
    """

    total: float
    behind: float

    def __str__(self) -> str:
        if not self.total:
            return "no communication"
        return (f"{self.behind / self.total:.0%} of {self.total:.1f} ms communication hidden behind computing, "
                f"{self.total - self.behind:.1f} ms waited for")


def hidden(main: Sequence[tuple[str, Interval]], helper: Iterable[Interval], window: Interval) -> Hidden:
    """The communication between two times.

    Args:
        main: the main thread's spans: the activity, and start and end in milliseconds.
        helper: start and end of each collective that the helper thread carried out.
        window: the two times.
    """
    stopped = [(kind, span) for kind, span in main if kind not in COMPUTING]
    blocking = [span for kind, span in stopped if kind != WAIT]
    waiting = merged((span for _, span in stopped), window)
    communication = merged([*helper, *blocking], window)
    return Hidden(length(communication), length(communication) - common(communication, waiting))


def merged(spans: Iterable[Interval], window: Interval) -> list[Interval]:
    """The parts of the window that spans cover, apart and ascending."""
    parts: list[Interval] = []
    for start, end in sorted(spans):
        start, end = max(start, window[0]), min(end, window[1])
        if parts and start <= parts[-1][1]:
            parts[-1] = parts[-1][0], max(end, parts[-1][1])
        elif start < end:
            parts.append((start, end))
    return parts


def length(parts: Iterable[Interval]) -> float:
    """The sum of the parts' lengths."""
    return sum(end - start for start, end in parts)


def common(some: Sequence[Interval], others: Sequence[Interval]) -> float:
    """The length that two lists of parts, each apart and ascending, have in common."""
    total, i, j = 0.0, 0, 0
    while i < len(some) and j < len(others):
        total += max(0.0, min(some[i][1], others[j][1]) - max(some[i][0], others[j][0]))
        i, j = (i + 1, j) if some[i][1] < others[j][1] else (i, j + 1)
    return total
