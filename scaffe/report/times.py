"""The page's sections about time: stacked activities, the timeline of some iterations, the layers' speed."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.errors import UserError
from scaffe.markup import escaped
from scaffe.pictures.timeline import COLOURS, OTHER, lay_out, to_svg
from scaffe.report.run import Run
from scaffe.report.trace import LayerTime, Trace

MORE_COLOURS = {"compiling": "#8a8d91", "test": "#d98f2b", "snapshot": "#5b7f95", "rest": "#c9ccd1"}


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
        start, end = trace.window()
        drawing = to_svg(lay_out(trace.events, start, end)).decode()
    except UserError:  # a trace without spans
        return ""
    shown = [e["name"].partition(" ")[0] for e in trace.events if e.get("ph") == "X"
             and (e["ts"] + e["dur"]) / 1e3 > start and (end is None or e["ts"] / 1e3 < end)]
    hidden = f": {run.hidden[1]:.1%} of all communication hidden behind computing" if run.hidden else ""
    return f'<figure><figcaption>{escaped(run.name)}{hidden}</figcaption><div class="wide">{drawing}</div>' \
           f"{_legend({name: name for name in sorted(set(shown))})}</figure>\n"


def _legend(texts: dict[str, str]) -> str:
    """Keys of activities' colours, each with its text."""
    keys = "".join(f'<li><i class="key" style="background:{_colour(name)}"></i>{escaped(text)}</li>'
                   for name, text in texts.items())
    return f'<ul class="legend">{keys}</ul>'


def _colour(activity: str) -> str:
    return MORE_COLOURS.get(activity) or COLOURS.get(activity, OTHER)


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
