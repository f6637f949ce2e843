"""One run: the data of its log and its trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from scaffe.input_files import read_text_input
from scaffe.pictures.scaling import RANKS, number_of
from scaffe.report.caffe_log import Row, parse_log
from scaffe.report.trace import Trace, read_trace

PACE = re.compile(r"Iteration (\d{1,18}) \(([\d.e+-]{1,30}) iter/s")
SUMMARY = re.compile(r"Summary: (\d{1,18}) iterations in ([\d.]{1,30}) s on \d+ rank\(s\), (\d{1,18}) images/s; (.*)")
SHARE = re.compile(r"([a-z ]{1,40}) ([\d.]{1,10})%")
HIDDEN = re.compile(r"Communication: ([\d.]{1,30}) s, ([\d.]{1,10})% of it hidden")
MOST_OUTPUTS = 100  # that a page shows, two charts each
NOTE = re.compile(r"\] (Settings|Command|Versions|Machine): (.*)")


@dataclass
class Run:
    """The data of a run. A log that breaks off has no summary; a trace without a log has no tables.

    Attributes:
        name: what the page calls it.
        train, test: the log's tables, as ``parse_log`` makes them.
        n_ranks, images_per_iteration: over all ranks; 0 where the log does not say.
        throughputs: (iteration, images a second since the display before).
        n_iterations, seconds, images_per_second: from the summary; 0 before the end.
        shares: activity → part of rank 0's time, 0 to 1, the largest first.
        hidden: seconds of communication, and the part of it that was hidden behind computing; None for one rank.
        notes: the log's lines of settings, command, versions and machine, by their first word.
        trace: None without one.
    """

    name: str
    train: list[Row] = field(default_factory=list)
    test: list[Row] = field(default_factory=list)
    n_ranks: int = 0
    images_per_iteration: int = 0
    throughputs: list[tuple[float, float]] = field(default_factory=list)
    n_iterations: int = 0
    seconds: float = 0.0
    images_per_second: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    hidden: tuple[float, float] | None = None
    notes: dict[str, str] = field(default_factory=dict)
    trace: Trace | None = None


def outputs_of(runs: Sequence[Run]) -> tuple[list[str], int]:
    """The first names of all runs' outputs, as many as a page can have, and the number of the others."""
    heads = ("NumIters", "Seconds", "LearningRate")
    names = list(dict.fromkeys(name for run in runs for row in (*run.train, *run.test) for name in row
                               if name not in heads))
    return names[:MOST_OUTPUTS], max(0, len(names) - MOST_OUTPUTS)


def read_run(name: str, log: str = "", trace: str = "") -> Run:
    """Read the run of this log and this trace, each a path, or empty where it has none. Raises UserError."""
    run = Run(name)
    if log:
        tables = parse_log(log)
        run.train, run.test = tables["Train"], tables["Test"]
        for line in read_text_input(log, "replace").splitlines():
            _note(run, line[:20_000])
    if trace:
        run.trace = read_trace(trace)
    return run


def _note(run: Run, line: str) -> None:
    """Keep the data of a line of the log that is in no table."""
    if found := RANKS.search(line):
        run.n_ranks, run.images_per_iteration = int(found[1]), int(found[2])
    elif found := SUMMARY.search(line):
        run.n_iterations, run.seconds, run.images_per_second = int(found[1]), number_of(found[2]), float(found[3])
        run.shares = {name.strip(): number_of(share) / 100 for name, share in SHARE.findall(found[4])}
    elif found := HIDDEN.search(line):
        run.hidden = number_of(found[1]), number_of(found[2]) / 100
    elif found := PACE.search(line):
        run.throughputs.append((float(found[1]), number_of(found[2]) * run.images_per_iteration))
    elif found := NOTE.search(line):
        run.notes.setdefault(found[1], found[2])
