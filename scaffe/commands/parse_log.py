"""Turn a training log into two CSV files, LOG.train and LOG.test, with Caffe's columns and arguments."""

from __future__ import annotations

import csv
import math
import re
from datetime import datetime
from pathlib import Path

from scaffe.errors import UserError
from scaffe.flags import Flags

STAMP = re.compile(r"^[IWEF](?P<year>\d{4})?(?P<day>\d{4}) (?P<time>\d\d:\d\d:\d\d\.\d{1,6})")
ITERATION = re.compile(r"Iteration (\d+)")
RATE = re.compile(r"lr = (\S+)")
OUTPUT = re.compile(r"(Train|Test) net output #\d+: (\S+) = (\S+)")
Row = dict[str, float]


def main(argv: list[str]) -> int:
    """``parse_log LOG FOLDER [--verbose] [--delimiter ,]``. Returns the exit code."""
    flags = Flags("parse_log", __doc__ or "")
    flags.add_argument("log", help="the log file")
    flags.add_argument("folder", help="where to write the CSV files")
    flags.flag("verbose", False, "say what is written")
    flags.flag("delimiter", ",", "between columns")
    options = flags.parse_args(argv)
    tables = parse_log(options.log)
    for kind, rows in tables.items():
        path = Path(options.folder) / f"{Path(options.log).name}.{kind.lower()}"
        if rows:
            write_csv(path, rows, options.delimiter)
        if options.verbose:
            print(f"Wrote {path}" if rows else f"Not writing {path}; no lines to write")
    return 0


def parse_log(path: str) -> dict[str, list[Row]]:
    """"Train" and "Test" to their rows: NumIters, Seconds since the solver started, LearningRate, the outputs.

    Raises:
        UserError: no such file, or no log of a solver.
    """
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
        year = datetime.fromtimestamp(Path(path).stat().st_ctime).year
    except OSError as error:
        raise UserError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    tables: dict[str, list[Row]] = {"Train": [], "Test": []}
    start = next((_time(line, year) for line in lines if "Solving" in line and STAMP.match(line)), None)
    if start is None:
        raise UserError(f"{path}: has no line 'Solving ...'; a solver's log was expected")
    iteration, rate, latest = -1, math.nan, start
    for line in lines:
        found = ITERATION.search(line)
        iteration = int(found[1]) if found else iteration
        if iteration < 0 or not STAMP.match(line):
            continue
        now = _time(line, year)
        if now.month < latest.month:
            year += 1
            now = _time(line, year)
        latest = now
        if found := RATE.search(line):
            rate = _number(found[1])
        if found := OUTPUT.search(line):
            row = _row(tables[found[1]], iteration, found[2], (now - start).total_seconds(), rate)
            row[found[2]] = _number(found[3])
    for rows in tables.values():
        if len(rows) > 1:
            rows[0]["LearningRate"] = rows[1]["LearningRate"]  # the first ones come before any rate is shown
    return tables


def write_csv(path: Path, rows: list[Row], delimiter: str = ",") -> None:
    """Write rows under a header of all their columns. Raises OSError, or TypeError for a long delimiter."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if len(delimiter) != 1:
        raise UserError(f"-delimiter must be one character, got {delimiter!r}")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def _row(rows: list[Row], iteration: int, name: str, seconds: float, rate: float) -> Row:
    """The row that an output belongs to: the newest, or a new one for a new iteration or another net's output."""
    if not rows or rows[-1]["NumIters"] != iteration or name in rows[-1]:
        rows.append({"NumIters": float(iteration), "Seconds": seconds, "LearningRate": rate})
    return rows[-1]


def _time(line: str, year: int) -> datetime:
    found = STAMP.match(line)
    if found is None:
        raise UserError(f"expected a log line with its time, got {line!r}")
    return datetime.strptime(f"{found['year'] or year}{found['day']} {found['time']}", "%Y%m%d %H:%M:%S.%f")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
