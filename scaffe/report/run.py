"""Finds the files of each run, logs and traces, and reads their data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scaffe.errors import UserError
from scaffe.input_files import open_input, read_text_input, told
from scaffe.pictures.scaling import RANKS, number_of
from scaffe.report.caffe_log import Row, parse_log, tells_of_training
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


LOG, TRACE = "log", "trace"
HEAD_BYTES = 1 << 16
STAMPED = re.compile(rb"(?m)^[IWEF]\d{4,8} \d\d:\d\d:\d\d\.")


def find_runs(paths: Sequence[str]) -> list[Run]:
    """Read the runs that paths name. A log and a trace are one run if their names differ only in the ending, or if they
    are the only log and the only trace of a folder or of all paths.

    Raises:
        UserError: a path is missing or is neither a log nor a trace, a folder has none of them, or a file is damaged.
    """
    groups: dict[str, dict[str, str]] = {}
    loose = [path for path in paths if not Path(path).is_dir()]
    _add(groups, "", [(path, _kind(path)) for path in loose])
    for path in paths:
        if Path(path).is_dir():
            _add(groups, Path(path).resolve().name, _inside(path))
    return [read_run(name, files.get(LOG, ""), files.get(TRACE, "")) for name, files in groups.items()]


def files_of(paths: Sequence[str]) -> list[str]:
    """The logs and traces that paths name. Raises UserError for a folder that has none."""
    return [file for path in paths for file in ([file for file, _ in _inside(path)] if Path(path).is_dir() else [path])]


def _add(groups: dict[str, dict[str, str]], folder: str, files: list[tuple[str, str]]) -> None:
    """Enter files that were found together."""
    kinds = [kind for _, kind in files]
    is_one_run = len(set(kinds)) == len(kinds)
    for path, kind in files:
        stem = Path(files[0][0] if is_one_run else path).name.split(".log")[0].removesuffix(".json")
        name = folder if folder and is_one_run else "/".join(filter(None, (folder, stem)))
        while kind in groups.get(name, {}):
            name += "'"  # another folder's of the same name
        groups.setdefault(name, {})[kind] = path


def _inside(folder: str) -> list[tuple[str, str]]:
    """A folder's logs and traces, by name; links, as glog makes beside its logs, are left out."""
    found = []
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and not path.is_symlink():
            kind = _guess(str(path))
            found += [(str(path), kind)] if kind else []
    if not found:
        raise UserError(f"{folder}: has no log of train and no trace of train -timeline")
    return found


def _kind(path: str) -> str:
    with told(path):
        kind = _guess(path)
    if not kind:
        raise UserError(f"{path}: neither a log of train nor a trace of train -timeline")
    return kind


def _guess(path: str) -> str:
    """Whether a file is a log or a trace, by its beginning; empty if neither. Raises OSError."""
    with open_input(path) as file:
        head = file.read(HEAD_BYTES)
    if head.lstrip().startswith(b'{"traceEvents"'):
        return TRACE
    if not STAMPED.search(head):
        return ""
    lines = read_text_input(path, "replace").splitlines()  # a net that is told of may be longer than the head
    return LOG if any(map(tells_of_training, lines)) else ""
