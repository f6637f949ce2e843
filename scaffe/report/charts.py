"""The page's charts: every output, the learning rate and the throughput, with a line for each run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scaffe.errors import UserError
from scaffe.line_chart import COLOURS, LARGEST, Axis, Chart, Line, Page
from scaffe.markup import escaped
from scaffe.report.caffe_log import Row, parse_log
from scaffe.report.run import Run, outputs_of

SMALL = Page(width=540, height=300, left=64, right=16, top=44, bottom=52, has_legend=False)
X_AXES = (("NumIters", "iterations"), ("Seconds", "seconds"))
Point = tuple[float, float]


def outputs(runs: Sequence[Run]) -> str:
    """Charts of each output of the training and the test nets, over iterations and over seconds."""
    names, n_more = outputs_of(runs)
    note = f"<p>{n_more:,} more outputs are not shown.</p>\n" if n_more else ""
    return note + "".join(_figure(name, label, [(f"{run.name} {kind}", points(rows, x, name)) for run in runs
                                         for kind, rows in (("train", run.train), ("test", run.test))])
                   for name in names for x, label in X_AXES)


def rates(runs: Sequence[Run]) -> str:
    """Charts of the learning rate and of images a second."""
    return (_figure("learning rate", "iterations", [(run.name, points(run.train, "NumIters", "LearningRate"))
                                                    for run in runs])
            + _figure("images a second, tests and snapshots included", "iterations",
                      [(run.name, finite(run.throughputs[1:])) for run in runs]))  # the first has no time before it


def points(rows: Sequence[Row], x: str, y: str) -> list[Point]:
    """Two columns of a log's table, where both are numbers."""
    return finite([(row[x], row[y]) for row in rows if x in row and y in row])


def finite(values: Sequence[Point]) -> list[Point]:
    """The points that can be drawn: no nan, nothing infinite or next to it."""
    return [(x, y) for x, y in values if abs(x) < LARGEST and abs(y) < LARGEST]


def chart(title: str, x_label: str, lines: Sequence[tuple[str, list[Point]]], page: Page) -> Chart | None:
    """Curves over linear axes; None where no line has a point."""
    drawn = [Line(name, values) for name, values in lines if values]
    return Chart(title, drawn, Axis(label=x_label), Axis(), page) if drawn else None


def _figure(title: str, x_label: str, lines: Sequence[tuple[str, list[Point]]]) -> str:
    """A chart with its legend below, which may be of any length; empty without points."""
    made = chart(title, x_label, lines, SMALL)
    if made is None:
        return ""
    legend = "".join(f'<li><i class="key c{i % len(COLOURS)}"></i>{escaped(line.name)}</li>'
                     for i, line in enumerate(made.lines))
    return f'<figure class="chart">{made.svg()}<ul class="legend">{legend}</ul></figure>\n'


WIDE = Page(width=820, right=210)


def plot_losses(*logs: str | Path, seconds: bool = False) -> Chart:
    """Draws the losses of training and test nets; a notebook shows what is returned.

    Args:
        logs: paths of training logs, each of a run.
        seconds: over the seconds since the solver started, instead of over iterations.

    Returns:
        a chart, whose ``svg()`` is the text of an SVG file.

    Raises:
        UserError: a log cannot be read or has no loss: an output with "loss" in its name.
    """
    x, label = ("Seconds", "seconds") if seconds else ("NumIters", "iterations")
    lines = []
    for log in logs:
        for kind, rows in parse_log(str(log)).items():
            names = dict.fromkeys(name for row in rows for name in row if "loss" in name.lower())
            prefix = f"{Path(log).stem} " if len(logs) > 1 else ""
            lines += [(f"{prefix}{kind.lower()} {name}", points(rows, x, name)) for name in names]
    made = chart("", label, lines, WIDE)
    if made is None:
        raise UserError(f"{', '.join(map(str, logs)) or 'no log'}: no output with \"loss\" in its name")
    return made
