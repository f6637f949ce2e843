"""The losses of training logs as one chart, for notebooks."""

from __future__ import annotations

from pathlib import Path

from scaffe.errors import UserError
from scaffe.line_chart import Chart, Page
from scaffe.report.caffe_log import parse_log
from scaffe.report.charts import chart, points

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
