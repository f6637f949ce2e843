"""Pictures of the kept figures, where they say more than a table: `make results` draws them into docs/."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scaffe.line_chart import Axis, Chart, Line, Linear, Logarithmic

LIMITED = re.compile(r"(?P<net>[^,]+), \d+, (?P<percent>\d+) %")
Points = dict[str, list[tuple[float, float]]]


def memory(folder: Path) -> str:
    """Speed against the memory that training is limited to, by net."""
    curves: Points = defaultdict(lambda: [(100.0, 1.0)])
    for row in _newest(folder, "memory.disk.*"):
        if found := LIMITED.match(row["net, images, limit"]):
            curves[found["net"]].append((float(found["percent"]), row["x no limit"]))
    return _drawn("Training in limited memory", curves, Axis(scale=Linear(), label="% of the memory without a limit"),
                  Axis(label="of the speed without a limit"))


def nodes(folder: Path) -> str:
    """Images a second against the number of emulated nodes, by net and way."""
    curves: Points = defaultdict(list)
    for net in ("speech", "local"):
        for n_nodes in (2, 4, 8):
            for row in _newest(folder, f"partitions.{net}-{n_nodes}.*"):
                if row["way"] in ("sc-rs", "one net"):
                    curves[f"{net}, {row['way']}"].append((float(n_nodes), row["images/s"]))
    return _drawn("One net on emulated nodes at 1 Gbit/s", curves, Axis(scale=Logarithmic(2), label="nodes"),
                  Axis(scale=Logarithmic(2), label="images/s"))


PICTURES: dict[str, Callable[[Path], str]] = {"memory_limits.svg": memory, "nodes.svg": nodes}
"""By the name that the file has in docs/."""


def _newest(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    """The rows of the newest file, by their columns."""
    tables = [json.loads(path.read_text()) for path in sorted(folder.glob(f"{pattern}.json"))]
    table = max(tables, key=lambda one: str(one["date"]))
    return (dict(zip(table["columns"], row, strict=True)) for row in table["rows"])


def _drawn(title: str, curves: Points, x: Axis, y: Axis) -> str:
    return Chart(title, [Line(name, sorted(points)) for name, points in curves.items()], x, y).svg()
