"""Tables in the OSU micro-benchmarks' layout, and the same rows as JSON."""

from __future__ import annotations

import json

import numpy as np

from scaffe.atomic_files import write_whole
from scaffe.collectives.errors import CommError

WIDTH = 18


def heading(title: str, columns: list[str], full: bool) -> str:
    """Formats the comment lines above a table; `full` adds minimum, mean and maximum of each column."""
    names = [name for column in columns for name in ([column, "min", "mean", "max"] if full else [column])]
    return f"# scaffe {title}\n{'# Size':<12}" + "".join(f"{name:>{WIDTH}}" for name in names)


def line(n_bytes: int, samples: list[np.ndarray], full: bool, note: str = "") -> str:
    """Formats one message size.

    Args:
        n_bytes: the message size.
        samples: per column, seconds of the slowest rank.
        full: also minimum, mean and maximum of each column.
        note: appended.

    Returns:
        The line: per column the median in microseconds.
    """
    figures = []
    for seconds in samples:
        figures.append(np.median(seconds) * 1e6)
        if full:
            figures += [seconds.min() * 1e6, seconds.mean() * 1e6, seconds.max() * 1e6]
    return f"{n_bytes:<12}" + "".join(f"{figure:>{WIDTH}.2f}" for figure in figures) + note


def row(n_bytes: int, column: str, seconds: np.ndarray) -> dict[str, object]:
    """Makes one column's entry for JSON, in microseconds, of its samples in seconds."""
    micro = seconds * 1e6
    return {"bytes": n_bytes, "algorithm": column, "median_us": float(np.median(micro)), "min_us": float(micro.min()),
            "mean_us": float(micro.mean()), "max_us": float(micro.max()), "iterations": len(micro)}


def write_json(path: str, about: dict[str, object], rows: list[dict[str, object]]) -> None:
    """Writes `about` and the rows to a JSON file. Raises CommError where it cannot be written."""
    write_whole(path, (json.dumps({**about, "rows": rows}, indent=1) + "\n").encode(), CommError)
