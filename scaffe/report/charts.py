"""The page's charts, a line for each run, and its sections about time: activities, some iterations, layers' speed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scaffe.errors import UserError
from scaffe.line_chart import COLOURS, LARGEST, Axis, Chart, Line, Page
from scaffe.markup import escaped
from scaffe.pictures import timeline
from scaffe.report.caffe_log import Row, parse_log
from scaffe.report.run import Run, outputs_of
from scaffe.report.trace import LayerTime, Trace

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


MORE_COLOURS = {"compiling": "#8a8d91", "rest": "#c9ccd1"}


def stacked(runs: Sequence[Run]) -> str:
    """A bar for each run: the part of rank 0's time that each activity took, with the figures below it."""
    return "".join(_bar(run) for run in runs if run.shares)


def timelines(runs: Sequence[Run]) -> str:
    """Timelines of some iterations in the middle of each run that has a trace, by rank."""
    return "".join(_timeline(run, run.trace) for run in runs if run.trace)


def layers(runs: Sequence[Run]) -> str:
    """A table for each trace: each layer's milliseconds and GFLOP/s."""
    return "".join(_layer_table(run.name, run.trace.layers()) for run in runs if run.trace and run.trace.layers())


def _bar(run: Run) -> str:
    parts = dict(run.shares)
    if (rest := 1 - sum(parts.values())) > 0.0005:
        parts["rest"] = rest
    whole = sum(parts.values())
    bars = "".join(f'<span style="width:{part / whole:.3%};background:{_colour(name)}" '
                   f'title="{escaped(name)}: {part:.1%}"></span>' for name, part in parts.items())
    return f'<figure><figcaption>{escaped(run.name)}</figcaption><div class="stack">{bars}</div>' \
           f'{_legend({name: f"{name} {part:.1%}" for name, part in parts.items()})}</figure>\n'


def _timeline(run: Run, trace: Trace) -> str:
    try:
        drawing = timeline.to_svg(timeline.lay_out(trace.events, trace.typical())).decode()
    except UserError:  # a trace without spans
        return ""
    hidden = f": {run.hidden[1]:.1%} of all communication hidden behind computing" if run.hidden else ""
    return f'<figure><figcaption>{escaped(run.name)}{hidden}</figcaption><div class="wide">{drawing}</div></figure>\n'


def _legend(texts: dict[str, str]) -> str:
    """Keys of activities' colours, each with its text."""
    keys = "".join(f'<li><i class="key" style="background:{_colour(name)}"></i>{escaped(text)}</li>'
                   for name, text in texts.items())
    return f'<ul class="legend">{keys}</ul>'


def _colour(activity: str) -> str:
    return MORE_COLOURS.get(activity) or timeline.COLOURS.get(activity, timeline.OTHER)


def _layer_table(name: str, times: Sequence[LayerTime]) -> str:
    most = max(max(time.forward_gflops, time.backward_gflops) for time in times)
    rows = "".join(f"<tr><th>{escaped(time.name)}</th>{_ms(time.forward_ms)}{_gflops(time.forward_gflops, most)}"
                   f"{_ms(time.backward_ms)}{_gflops(time.backward_gflops, most)}</tr>" for time in times)
    return (f'<figure><figcaption>{escaped(name)}, rank 0</figcaption><div class="wide"><table><thead><tr>'
            "<th>layer</th><th>forward ms</th><th>GFLOP/s</th><th>backward ms</th><th>GFLOP/s</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></div></figure>\n")


def _ms(milliseconds: float) -> str:
    return f"<td>{milliseconds:.3f}</td>" if milliseconds else "<td></td>"


def _gflops(value: float, most: float) -> str:
    return f'<td><b style="width:{4 * value / most:.2f}em"></b>{value:.1f}</td>' if value else "<td></td>"
