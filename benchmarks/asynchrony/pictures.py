"""Pictures and tables of what ``benchmarks/asynchronous.py`` found: medians of seeds, with the least and the most."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from figures import Figures
from lateness import KINDS

from asynchrony.runs import WAYS
from scaffe.line_chart import Axis, Chart, Line, Linear, Logarithmic

CHANCE = 0.1
"""Accuracy of a net that has learned nothing; one that has diverged has less, or as much."""

Rows = list[dict[str, Any]]


def draw(rows: Rows, out: Path, keep: bool) -> None:
    """Write the pictures, and print the tables. ``keep``: whether these are kept for docs/benchmarks.md."""
    out.mkdir(parents=True, exist_ok=True)
    accuracy = [row for row in rows if row["part"] == "accuracy"]
    for net in sorted({row["net"] for row in accuracy}):
        own = [row for row in accuracy if row["net"] == net]
        by_workers = [row for row in own if not row["way"].startswith("n_sync")]
        show(net, by_workers, keep)
        (out / f"asynchronous_{net}.svg").write_text(workers_chart(net, by_workers).svg())
        (out / f"asynchronous_{net}_seconds.svg").write_text(seconds_chart(net, by_workers).svg())
        if synced := [row for row in own if row["way"].startswith("n_sync")]:
            show(f"{net}-n_sync", synced, keep)
    if late := [row for row in rows if row["part"] == "late"]:
        (out / "asynchronous_late.svg").write_text(late_chart(late).svg())


def show(variant: str, rows: Rows, keep: bool) -> None:
    """Ways down, workers across."""
    counts = sorted({row["workers"] for row in rows})
    note = f"{variant}: accuracy after {rows[0]['images']:,} images, median (least-most) of seeds."
    with Figures("staleness", ("way", *(f"{n} workers" for n in counts)), note, keep, variant=variant) as table:
        for way in _ways(rows):
            table.add(way, *(_cell([_last(row) for row in rows if (row["way"], row["workers"]) == (way, n)])
                             for n in counts))


def workers_chart(net: str, rows: Rows) -> Chart:
    """Accuracy at the end by number of workers."""
    lines = []
    for way in _ways(rows):
        counts = sorted({row["workers"] for row in rows if row["way"] == way})
        lines.append(Line(way, [(n, median(_last(row) for row in rows if (row["way"], row["workers"]) == (way, n)))
                                for n in counts]))
    return Chart(f"{net}: accuracy after the same number of images, median of seeds", lines,
                 Axis(scale=Logarithmic(2), label="workers"), Axis(scale=Linear(), label="accuracy"))


def seconds_chart(net: str, rows: Rows) -> Chart:
    """Accuracy by seconds of training, of the most workers whose ways all learn."""
    counts = sorted({row["workers"] for row in rows})
    learn = [n for n in counts if all(_last(row) > CHANCE for row in rows if row["workers"] == n)]
    n_workers = max(learn, default=counts[0])
    lines = []
    for way in _ways(rows):
        points = [row["points"] for row in rows if (row["way"], row["workers"]) == (way, n_workers)]
        lines.append(Line(way, [(median(p[1] for p in at), median(p[2] for p in at))
                                for at in zip(*points, strict=False)]))
    title = f"{net}, {n_workers} workers: accuracy by seconds of training"
    return Chart(title, [line for line in lines if line.points],
                 Axis(scale=Linear(), label="seconds"), Axis(scale=Linear(), label="accuracy"))


def late_chart(rows: Rows) -> Chart:
    """What is left of the images a second, by who is late."""
    lines = [Line(way, [(KINDS.index(row["late"]), row["of_nobody_late"]) for row in rows if row["way"] == way])
             for way in dict.fromkeys(row["way"] for row in rows)]
    return Chart("images per second, of the same way's with nobody late", lines,
                 Axis(lambda value: KINDS[int(value)] if value == int(value) else "", Linear(3), "who is late"),
                 Axis(scale=Linear()))


def _ways(rows: Rows) -> list[str]:
    return [way for way in WAYS if any(row["way"] == way for row in rows)]


def _last(row: dict[str, Any]) -> float:
    return float(row["points"][-1][2])


def _cell(accuracies: Iterable[float]) -> str:
    """The median of the runs that learned, their least and most, and how many diverged."""
    found = sorted(accuracies)
    learned = [accuracy for accuracy in found if accuracy > CHANCE]
    if not learned:
        return "diverges" if found else ""
    text = f"{median(learned):.3f}"
    if len(learned) < len(found):
        return f"{text}; {len(found) - len(learned)} of {len(found)} diverge"
    return text if len(found) == 1 else f"{text} ({found[0]:.2f}-{found[-1]:.2f})"
