"""DistBelief's figures 4 and 5 in small: accuracy against seconds, and seconds to an accuracy against workers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from figures import Figures

from sandblaster_parts.simulated import reached
from scaffe.line_chart import Axis, Chart, Line, Linear, Logarithmic

Rows = list[dict[str, Any]]
PARTS = {"methods": ("sandblaster", "seconds"), "simulated": ("sandblaster_simulated", "simulated seconds")}
"""For each part of the benchmark, how its pictures' files begin, and what passes on their axes."""


def draw(rows: Rows, accuracy: float, out: Path, keep: bool) -> None:
    """Write the pictures of what has been measured, and print the tables.
    ``keep``: whether these are kept for docs/benchmarks.md."""
    out.mkdir(parents=True, exist_ok=True)
    for part, (name, seconds) in PARTS.items():
        if own := [row for row in rows if row["part"] == part]:
            (out / f"{name}_seconds.svg").write_text(seconds_chart(own, accuracy, seconds).svg())
            (out / f"{name}_workers.svg").write_text(workers_chart(own, accuracy, seconds).svg())
            show(part, own, accuracy, keep)


def seconds_chart(rows: Rows, accuracy: float, seconds: str) -> Chart:
    """Every way's accuracy by time, with the most workers of which every way reaches the accuracy; else the most."""
    all_reach = [n for n in _counts(rows) if all(math.isfinite(reached(row["points"], accuracy))
                                                 for row in rows if row["workers"] == n)]
    n_workers = max(all_reach or _counts(rows))
    lines = [Line(row["way"], [(at, found) for at, found in row["points"] if at > 0])
             for row in rows if row["workers"] == n_workers]
    return Chart(f"Accuracy against {seconds}, {n_workers} workers", [line for line in lines if line.points],
                 Axis(scale=Logarithmic(10), label=seconds), Axis(scale=Linear(), label="accuracy"))


def workers_chart(rows: Rows, accuracy: float, seconds: str) -> Chart:
    """Time until the accuracy is reached, by number of workers; ways that do not reach it have no point."""
    lines = []
    for way in dict.fromkeys(row["way"] for row in rows):
        times = {row["workers"]: reached(row["points"], accuracy) for row in rows if row["way"] == way}
        lines.append(Line(way, [(n, times[n]) for n in sorted(times) if 0 < times[n] < math.inf]))
    return Chart(f"{seconds.capitalize()} to an accuracy of {accuracy:g}", [line for line in lines if line.points],
                 Axis(scale=Logarithmic(2), label="workers"), Axis(scale=Logarithmic(10), label=seconds))


def show(part: str, rows: Rows, accuracy: float, keep: bool) -> None:
    """Ways down, workers across: seconds until the accuracy is reached."""
    counts, note = _counts(rows), f"{PARTS[part][1].capitalize()} to an accuracy of {accuracy:g}."
    with Figures("sandblaster", ("way", *(f"{n} workers" for n in counts)), note, keep, variant=part) as table:
        for way in dict.fromkeys(row["way"] for row in rows):
            times = {row["workers"]: reached(row["points"], accuracy) for row in rows if row["way"] == way}
            table.add(way, *(times[n] if math.isfinite(times.get(n, math.inf)) else "never" for n in counts))


def _counts(rows: Rows) -> list[int]:
    return sorted({row["workers"] for row in rows})
