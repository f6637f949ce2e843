"""Strong and weak scaling from the logs of runs on different numbers of ranks, as a table, JSON or a chart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from scaffe.errors import UserError
from scaffe.input_files import read_text_input
from scaffe.line_chart import Axis, Chart, Line, Logarithmic

RANKS = re.compile(r"Training on (\d{1,9}) rank\(s\), (\d{1,18}) images an iteration")
PACE = re.compile(r"Iteration \d{1,18} \(([\d.e+-]{1,30}) iter/s")
SUMMARY = re.compile(r"Summary: \d+ iterations in \S+ s on \d+ rank\(s\)")
LEAST, LARGEST = 1e-30, 1e30  # images a second
WARM_UP = 2  # displays left out: the first has no throughput, the second one includes the first iteration
HEAD = f"{'# scaling':10}{'ranks':>7}{'images/iter':>13}{'iter/s':>12}{'images/s':>12}{'speedup':>10}{'efficiency':>12}"


@dataclass(frozen=True)
class Row:
    """A line of the table: a run, its images over all ranks, its iterations a second the median.

    Attributes:
        speedup: images per second relative to the run on the fewest ranks of this kind of scaling, times that number
            of ranks; equals ``n_ranks`` if scaling is perfect.
        efficiency: speedup / n_ranks.
    """

    scaling: str
    n_ranks: int
    images_per_iteration: int
    iterations_per_second: float
    images_per_second: float
    speedup: float = 0.0
    efficiency: float = 0.0


def read_run(path: str, scaling: str) -> Row:
    """One train command's log, whose solver displays at least three times.

    Raises:
        UserError: no such file, or no log of a whole run.
    """
    text = read_text_input(path, "replace", UserError)
    ranks = RANKS.search(text)
    paces = [number_of(pace) for pace in PACE.findall(text)][WARM_UP:]
    if ranks is None or not SUMMARY.search(text):
        raise UserError(f"{path}: not the log of a training run that came to its end")
    if not paces:
        raise UserError(f"{path}: needs more than {WARM_UP} displays; lower the solver's display or raise max_iter")
    pace = median(paces)
    run = Row(scaling, int(ranks[1]), int(ranks[2]), pace, int(ranks[2]) * pace)
    if not LEAST < run.images_per_second < LARGEST or not run.n_ranks:
        raise UserError(f"{path}: expected ranks, images and iterations a second above 0, got {run.n_ranks}, "
                        f"{run.images_per_iteration} and {run.iterations_per_second:g}")
    return run


def number_of(text: str) -> float:
    """A number; 0 for any other text."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def rows_of(runs: Sequence[Row]) -> list[Row]:
    """The table's lines, by kind and ranks. Raises UserError where a kind has two runs on as many ranks."""
    rows = []
    for scaling in sorted({run.scaling for run in runs}):
        mine = sorted((run for run in runs if run.scaling == scaling), key=lambda run: run.n_ranks)
        counts = [run.n_ranks for run in mine]
        if len(set(counts)) < len(counts):
            raise UserError(f"{scaling} scaling: several logs of runs on as many ranks: {counts}")
        for run in mine:
            speedup = run.images_per_second / mine[0].images_per_second * mine[0].n_ranks
            rows.append(replace(run, speedup=speedup, efficiency=speedup / run.n_ranks))
    return rows


def as_text(rows: Sequence[Row]) -> str:
    """The table."""
    lines = [f"{row.scaling:10}{row.n_ranks:7d}{row.images_per_iteration:13d}{row.iterations_per_second:12.4g}"
             f"{row.images_per_second:12.4g}{row.speedup:10.2f}{row.efficiency:12.1%}" for row in rows]
    return "\n".join([HEAD, *lines])


def chart(rows: Sequence[Row]) -> Chart:
    """Images a second over ranks, each kind beside perfect scaling from its first run."""
    lines = []
    for scaling in dict.fromkeys(row.scaling for row in rows):
        mine = [row for row in rows if row.scaling == scaling]
        per_rank = mine[0].images_per_second / mine[0].n_ranks
        lines += [Line(scaling, [(row.n_ranks, row.images_per_second) for row in mine]),
                  Line(f"{scaling}, perfect", [(row.n_ranks, row.n_ranks * per_rank) for row in mine])]
    return Chart("Training: images a second", lines, x=Axis(scale=Logarithmic(2), label="ranks"),
                 y=Axis(scale=Logarithmic(10)))
