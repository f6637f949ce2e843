"""Commands that read logs and timelines of runs.

Each takes its arguments without the program's name, and returns the exit code.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scaffe.atomic_files import refuse_input, write_whole
from scaffe.errors import UserError
from scaffe.flags import Flags, number
from scaffe.pictures.scaling import as_text, chart, read_run, rows_of
from scaffe.pictures.timeline import Window, lay_out, to_png, to_svg, whole
from scaffe.report import caffe_log
from scaffe.report.page import html
from scaffe.report.run import files_of, find_runs
from scaffe.report.trace import Trace, read_trace

MOST_FIELDS = 5_000_000  # of a CSV file
MOST_MS = 1e15
ITERATIONS = re.compile(r"(\d{0,15})(:)?(\d{0,15})")
PICTURE_WRITERS = {".svg": to_svg, ".png": to_png}


def parse_log(argv: Sequence[str]) -> int:
    """Convert a training log into two CSV files.

    LOG.train and LOG.test, with the columns and arguments of Caffe's parse_log.py.
    """
    flags = Flags.of(parse_log)
    flags.argument("log", "the log file")
    flags.argument("folder", "where to write the CSV files")
    flags.flag("verbose", False, "say what is written")
    flags.flag("delimiter", ",", "between columns")
    options = flags.parse(argv)
    tables = caffe_log.parse_log(options.log)
    for kind, rows in tables.items():
        path = Path(options.folder) / f"{Path(options.log).name}.{kind.lower()}"
        if rows:
            write_csv(path, rows, options.delimiter)
        if options.verbose:
            print(f"Wrote {path}" if rows else f"Not writing {path}; no lines to write")
    return 0


def write_csv(path: Path, rows: list[caffe_log.Row], delimiter: str = ",") -> None:
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


def plot(argv: Sequence[str]) -> int:
    """Draw a timeline that train -timeline wrote.

    It draws three typical iterations, unless -iterations names others.
    """
    flags = Flags.of(plot)
    flags.argument("trace", "the trace's JSON")
    flags.argument("picture", "the .svg or .png to write; none: the trace's name with .svg", default="")
    flags.flag("iterations", "", "those to draw: 40:43 are 40, 41 and 42, 40 is one, : are all", metavar="A:B")
    flags.flag("start", 0.0, "draw from this millisecond on, instead of iterations", kind=number(0, MOST_MS))
    flags.flag("end", 0.0, "draw up to this millisecond; 0: to the end", kind=number(0, MOST_MS))
    flags.flag("output", "", "the picture, as the argument says it", metavar="FILE")
    options = flags.parse(argv)
    if bool(options.iterations) + bool(options.start or options.end) > 1:
        flags.error("give -iterations, or -start and -end, not both")
    if options.picture and options.output:
        flags.error(f"two files to write: {options.picture} and {options.output}")
    output = Path(options.picture or options.output or Path(options.trace).with_suffix(".svg"))
    if output.suffix.lower() not in PICTURE_WRITERS:
        raise UserError(f"{output}: cannot draw {output.suffix or 'a file without an ending'}; expected .svg or .png")
    refuse_input(output, [options.trace], UserError)
    trace = read_trace(options.trace)
    try:
        picture = lay_out(trace.events, _window(trace, options))
    except UserError as error:
        raise UserError(f"{options.trace}: {error}") from error
    write_whole(output, PICTURE_WRITERS[output.suffix.lower()](picture), UserError)
    print(output)
    return 0


def _window(trace: Trace, options: Any) -> Window:
    """What of the trace to draw. Raises UserError for iterations that it has not."""
    if options.start or options.end:
        return whole(trace.events, options.start, options.end or None)
    if not options.iterations:
        return trace.typical()
    asked = ITERATIONS.fullmatch(options.iterations)
    if asked is None:
        raise UserError(f"-iterations: expected A:B (40:43 are 40, 41 and 42) or a number, got {options.iterations!r}")
    least, end = trace.first_iteration, trace.first_iteration + len(trace.ends())
    first = int(asked[1] or least)
    last = first + 1 if not asked[2] else int(asked[3] or end)
    if not least <= first < last <= end:
        raise UserError(f"-iterations: the trace has {least} to {end - 1}, got {options.iterations}")
    return trace.window(first, last - first)


def report(argv: Sequence[str]) -> int:
    """Make one page of HTML from logs and traces of runs.

    Folders stand for the logs and traces inside. The page needs no network.
    """
    flags = Flags.of(report)
    flags.rest("runs", "logs of train, traces of train -timeline, or folders with them")
    flags.flag("output", "report.html", "the page to write", metavar="FILE")
    flags.flag("title", "", "the page's title; none: the runs' names")
    options = flags.parse(argv)
    refuse_input(options.output, files_of(options.runs), UserError)
    runs = find_runs(options.runs)
    page = html(runs, options.title or ", ".join(run.name for run in runs))
    write_whole(options.output, page.encode(), UserError)
    print(options.output)
    return 0


def scaling(argv: Sequence[str]) -> int:
    """Make a scaling table from logs of 1..N ranks.

    And, where asked for, a picture of it.
    """
    flags = Flags.of(scaling)
    flags.flag("strong", "", "logs of train -scal strong", metavar="LOG,...")
    flags.flag("weak", "", "logs of train -scal weak", metavar="LOG,...")
    flags.flag("json", "", "write the table there as well", metavar="FILE")
    flags.flag("plot", "", "draw it there, as SVG", metavar="FILE")
    options = flags.parse(argv)
    logs = {kind: [path for path in getattr(options, kind).split(",") if path] for kind in ("strong", "weak")}
    if not any(logs.values()):
        flags.error("needs -strong or -weak")
    for output in filter(None, (options.json, options.plot)):
        refuse_input(output, logs["strong"] + logs["weak"], UserError)
    rows = rows_of([read_run(path, kind) for kind, paths in logs.items() for path in paths])
    print(as_text(rows))
    if options.json:
        write_whole(options.json, f"{json.dumps([asdict(row) for row in rows], indent=1)}\n".encode(), UserError)
    if options.plot:
        write_whole(options.plot, chart(rows).svg().encode(), UserError)
    return 0
