"""One run: the data of its log and its trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from scaffe.input_files import read_text_input
from scaffe.report.caffe_log import Row, parse_log
from scaffe.report.trace import Trace, read_trace

RANKS = re.compile(r"Training on (\d{1,9}) rank\(s\), (\d{1,18}) images an iteration")
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

    def outputs(self) -> list[str]:
        """The names of the outputs in the log's tables."""
        heads = ("NumIters", "Seconds", "LearningRate")
        return list(dict.fromkeys(name for row in (*self.train, *self.test) for name in row if name not in heads))


def outputs_of(runs: Sequence[Run]) -> tuple[list[str], int]:
    """The first names of all runs' outputs, as many as a page can have, and the number of the others."""
    names = list(dict.fromkeys(name for run in runs for name in run.outputs()))
    return names[:MOST_OUTPUTS], max(0, len(names) - MOST_OUTPUTS)


def read_run(name: str, log: str = "", trace: str = "") -> Run:
    """Read a run's files.

    Args:
        name: what the page calls it.
        log: the path of its log; empty: it has none.
        trace: the path of its trace; empty: it has none.

    Raises:
        UserError: a file cannot be read or is something else.
    """
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
        run.n_iterations, run.seconds, run.images_per_second = int(found[1]), _number(found[2]), float(found[3])
        run.shares = {name.strip(): _number(share) / 100 for name, share in SHARE.findall(found[4])}
    elif found := HIDDEN.search(line):
        run.hidden = _number(found[1]), _number(found[2]) / 100
    elif found := PACE.search(line):
        run.throughputs.append((float(found[1]), _number(found[2]) * run.images_per_iteration))
    elif found := NOTE.search(line):
        run.notes.setdefault(found[1], found[2])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
