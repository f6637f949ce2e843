"""How many ranges of addresses this process has, which the system allows it a certain number of (Linux)."""

from __future__ import annotations

from pathlib import Path

OWN, MOST = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
USUAL_MOST = 65530
EVERY = 256  # calls: between two counts, which take some ten milliseconds where there are many


class Maps:
    """Says whether there are so many ranges that no more should be made: half of those allowed. Beyond all of them, no
    memory can be had any more."""

    def __init__(self) -> None:
        self._most, self._n_calls, self._are_many = _number(MOST) // 2, 0, False

    def are_many(self) -> bool:
        """As last counted."""
        if self._n_calls % EVERY == 0:
            self._are_many = _n_lines(OWN) > self._most
        self._n_calls += 1
        return self._are_many


def _number(place: Path) -> int:
    try:
        return int(place.read_text())
    except (OSError, ValueError):  # no Linux
        return USUAL_MOST


def _n_lines(place: Path) -> int:
    try:
        return place.read_bytes().count(b"\n")
    except OSError:
        return 0
