"""A training log into two CSV files.

LOG.train and LOG.test, with the columns and arguments of Caffe's parse_log.py.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from scaffe.atomic_files import write_whole
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.report.caffe_log import Row, parse_log

GROUP = "Logs and pictures"
MOST_FIELDS = 5_000_000  # of a CSV file


def main(argv: list[str]) -> int:
    """``parse_log LOG FOLDER [--verbose] [--delimiter ,]``. Returns the exit code."""
    flags = Flags("parse_log", __doc__ or "")
    flags.argument("log", "the log file")
    flags.argument("folder", "where to write the CSV files")
    flags.flag("verbose", False, "say what is written")
    flags.flag("delimiter", ",", "between columns")
    options = flags.parse(argv)
    tables = parse_log(options.log)
    for kind, rows in tables.items():
        path = Path(options.folder) / f"{Path(options.log).name}.{kind.lower()}"
        if rows:
            write_csv(path, rows, options.delimiter)
        if options.verbose:
            print(f"Wrote {path}" if rows else f"Not writing {path}; no lines to write")
    return 0


def write_csv(path: Path, rows: list[Row], delimiter: str = ",") -> None:
    """Write rows under a header of all their columns.

    Raises:
        UserError: it cannot be written, the delimiter is none, or the table is vast.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise UserError(f"-delimiter must be one character, and no quote and no line's end, got {delimiter!r}")
    if len(columns) * len(rows) > MOST_FIELDS:
        raise UserError(f"{path}: expected a table of at most {MOST_FIELDS:,} fields, got {len(columns):,} columns and "
                        f"{len(rows):,} rows")
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode(), UserError)
