"""Reads Caffe's training log as tables, as its parse_log.py does."""

from __future__ import annotations

import math
import re
from datetime import datetime
from pathlib import Path

from scaffe.errors import UserError
from scaffe.input_files import read_text_input, told

STAMP = re.compile(r"^[IWEF](?P<year>\d{4})?(?P<day>\d{4}) (?P<time>\d\d:\d\d:\d\d\.\d{1,6})")
ITERATION = re.compile(r"Iteration (\d{1,18})")
RATE = re.compile(r"lr = (\S+)")
BEGINS = re.compile(r"\] Solving|\] Iteration \d")
OUTPUT = re.compile(r"(Train|Test) net output #\d+: (\S+) = (\S+)")
Row = dict[str, float]


def parse_log(path: str) -> dict[str, list[Row]]:
    """"Train" and "Test" to their rows: NumIters, Seconds since the solver started, LearningRate, the outputs.

    A log without a line "Solving", of a script that calls ``step``, starts with its first iteration.

    Raises:
        UserError: no such file, or no log of a solver.
    """
    with told(path):
        lines = read_text_input(path, "replace").splitlines()
        year = datetime.fromtimestamp(Path(path).stat().st_ctime).year
    tables = {"Train": _Table(), "Test": _Table()}
    first = next(filter(tells_of_training, lines), None)
    if first is None:
        raise UserError(f"{path}: has no line 'Solving ...' nor 'Iteration ...'; a solver's log was expected")
    start = _time(path, first, year)
    iteration, rate, latest = -1, math.nan, start
    for line in lines:
        found = ITERATION.search(line)
        iteration = int(found[1]) if found else iteration
        if iteration < 0 or not STAMP.match(line):
            continue
        now = _time(path, line, year)
        if now.month < latest.month:
            year += 1
            now = _time(path, line, year)
        latest = now
        if found := RATE.search(line):
            rate = _number(found[1])
        if found := OUTPUT.search(line):
            head = {"NumIters": float(iteration), "Seconds": (now - start).total_seconds(), "LearningRate": rate}
            tables[found[1]].add(head, found[2], _number(found[3]))
    return {kind: table.finish() for kind, table in tables.items()}


def tells_of_training(line: str) -> bool:
    """Whether a line begins a solver's run or reports an iteration."""
    return STAMP.match(line) is not None and BEGINS.search(line) is not None


class _Table:
    """Rows in the making, begun and ended as Caffe 1.0's parse_log does it: the first row lasts until another
    iteration's output comes, a later one until it has as many columns as the first."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._open: Row = {}

    def add(self, head: Row, name: str, value: float) -> None:
        """Enter one output of one iteration."""
        if self._open.get("NumIters") != head["NumIters"]:
            self._end()
            self._open = dict(head)
        self._open[name] = value
        if self._rows and len(self._open) == len(self._rows[0]):
            self._end()

    def finish(self) -> list[Row]:
        """All rows. A last one that breaks off is left out, unless it is the only one."""
        if not self._rows:
            self._end()
        if len(self._rows) > 1:
            self._rows[0]["LearningRate"] = self._rows[1]["LearningRate"]  # the first come before any rate is shown
        return self._rows

    def _end(self) -> None:
        if self._open:
            self._rows.append(self._open)
        self._open = {}


def _time(path: str, line: str, year: int) -> datetime:
    found = STAMP.match(line)
    try:
        if found is not None:
            return datetime.strptime(f"{found['year'] or year}{found['day']} {found['time']}", "%Y%m%d %H:%M:%S.%f")
    except ValueError:
        pass  # the 31st of February
    raise UserError(f"{path}: expected a log line with its time, got {line[:200]!r}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
