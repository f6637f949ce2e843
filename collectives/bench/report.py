"""Tables in the OSU micro-benchmarks' layout and as JSON, what rank 0 alone does, and whether `auto` chose well."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from scaffe.atomic_files import write_whole
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError

T = TypeVar("T")


def on_root(communicator: Communicator, step: Callable[[], T]) -> T | None:
    """Runs a step on rank 0. All ranks call it.

    Args:
        communicator: its rank 0 runs the step.
        step: sends no messages.

    Returns:
        The step's result on rank 0, None on the others.

    Raises:
        CommError: on all ranks, where the step raises it.
    """
    result, mistake = None, ""
    if communicator.rank == 0:
        try:
            result = step()
        except CommError as error:
            mistake = str(error)
    if mistake := communicator.bcast_object(mistake):
        raise CommError(mistake, everywhere=True)
    return result


WIDTH = 18


def heading(title: str, columns: list[str], full: bool) -> str:
    """Formats the comment lines above a table; `full` adds minimum, mean and maximum of each column."""
    names = [name for column in columns for name in ([column, "min", "mean", "max"] if full else [column])]
    return f"# scaffe {title}\n{'# Size':<12}" + "".join(f"{name:>{WIDTH}}" for name in names)


def line(n_bytes: int, samples: list[np.ndarray], full: bool, note: str = "") -> str:
    """Formats one message size. ``samples``: per column, seconds of the slowest rank. Returns the line: per column the
    median in microseconds."""
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


MOST = 1.1
"""How many times the best other column's time `auto` may take."""
TRIES = 4
"""Measurements of a message size at most, of which each column's fastest counts."""


def best_other(titles: Sequence[str], seconds: Sequence[float]) -> tuple[float, str]:
    """Compares `auto` with the fastest other column. Returns how many times that column's time `auto` takes, and that
    column's title. Raises CommError unless `auto` and another column are there."""
    others = [(time, title) for time, title in zip(seconds, titles, strict=True) if title != "auto"]
    if "auto" not in titles or not others:
        raise CommError("--check-auto compares auto with other algorithms: -a needs both, as in mpi,M,C,auto",
                        everywhere=True)
    time, title = min(others)
    return seconds[titles.index("auto")] / time, title


def check(titles: Sequence[str], measure: Callable[[], Sequence[float]]) -> tuple[float, str]:
    """Repeats a measurement, up to TRIES times, until `auto` is within MOST of the best other column.

    Args:
        measure: gives each column's seconds, the same on all ranks.

    Returns:
        As `best_other`, of each column's fastest measurement.
    """
    fastest = np.array(measure())
    for _ in range(TRIES - 1):
        if best_other(titles, list(fastest))[0] <= MOST:
            break
        fastest = np.minimum(fastest, measure())
    return best_other(titles, list(fastest))
