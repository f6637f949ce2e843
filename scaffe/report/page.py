"""One self-contained page of HTML about some runs, without scripts or network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from google.protobuf import text_format

from scaffe.errors import UserError
from scaffe.files.upgrade import upgrade_net
from scaffe.markup import escaped
from scaffe.pictures.net_picture import net_picture, to_svg
from scaffe.proto import caffe_pb2
from scaffe.report import charts
from scaffe.report.run import Run, outputs_of

MOST_NOTE, MOST_LAYERS = 20_000, 2000  # characters; boxes of a net
STYLE = Path(__file__).with_name("style.css")
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}</main>
</body>
</html>
"""


def html(runs: Sequence[Run], title: str) -> str:
    """The page, as text. Sections for which no run has data are left out."""
    sections: list[tuple[str, str, Callable[[Sequence[Run]], str]]] = [
        ("Runs", "", _summary),
        ("Loss and accuracy", "", charts.outputs),
        ("Learning rate and throughput", "", charts.rates),
        ("Where the time went", "Rank 0, from the first iteration to the end.", charts.stacked),
        ("Some iterations, rank by rank", "Typical ones; a row a thread, in milliseconds.", charts.timelines),
        ("Layers", "Medians over the iterations. GFLOP/s: of matrix products, two operations a multiply-add.",
         charts.layers),
        ("Net", "", _drawings),
        ("Settings, versions, machine", "", _notes)]
    body = "".join(_section(head, said, make(runs)) for head, said, make in sections)
    return PAGE.format(title=escaped(title), style=STYLE.read_text(), body=body)


def _section(head: str, said: str, content: str) -> str:
    note = f"<p>{said}</p>\n" if said else ""
    return f"<section>\n<h2>{head}</h2>\n{note}{content}</section>\n" if content else ""


def _summary(runs: Sequence[Run]) -> str:
    """A column a run."""
    rows: list[tuple[str, Callable[[Run], str]]] = [
        ("ranks", lambda run: f"{run.n_ranks}" if run.n_ranks else ""),
        ("images an iteration", lambda run: f"{run.images_per_iteration:,}" if run.n_ranks else ""),
        ("iterations", lambda run: f"{run.n_iterations:,}" if run.n_iterations else _reached(run)),
        ("seconds", lambda run: f"{run.seconds:,.1f}" if run.seconds else ""),
        ("images a second", lambda run: f"{run.images_per_second:,.0f}" if run.seconds else ""),
        ("communication, s", lambda run: f"{run.hidden[0]:.2f}" if run.hidden else ""),
        ("of it hidden", lambda run: f"{run.hidden[1]:.1%}" if run.hidden else "")]
    names, _ = outputs_of(runs)
    rows += [(f"{name}, last {kind}", lambda run, name=name, kind=kind: _last(run, kind, name))  # type: ignore[misc]
             for name in names for kind in ("train", "test")]
    heads = "".join(f"<th>{escaped(run.name)}</th>" for run in runs)
    lines = [(label, [of(run) for run in runs]) for label, of in rows]
    body = "".join(f"<tr><th>{escaped(label)}</th>{''.join(f'<td>{escaped(cell)}</td>' for cell in cells)}</tr>"
                   for label, cells in lines if any(cells))
    return f'<div class="wide"><table><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table></div>\n'


def _reached(run: Run) -> str:
    """The last iteration of a log without an end."""
    seen = [row["NumIters"] for row in (*run.train, *run.test)]
    return f"{max(seen):,.0f} so far" if seen else ""


def _last(run: Run, kind: str, name: str) -> str:
    values = [row[name] for row in getattr(run, kind) if name in row]
    return f"{values[-1]:.5g}" if values else ""


def _drawings(runs: Sequence[Run]) -> str:
    """Each net once, under the names of the runs that have it."""
    nets: dict[str, list[str]] = {}
    for run in runs:
        if run.trace and run.trace.net:
            nets.setdefault(run.trace.net, []).append(run.name)
    return "".join(f'<figure><figcaption>{escaped(", ".join(names))}</figcaption><div class="wide net">{drawing}</div>'
                   "</figure>\n" for net, names in nets.items() if (drawing := _drawing(net)))


def _drawing(prototxt: str) -> str:
    try:
        message = upgrade_net(text_format.Parse(prototxt, caffe_pb2.NetParameter()))
        return to_svg(net_picture(message)).decode() if len(message.layer) <= MOST_LAYERS else ""
    except (text_format.ParseError, UserError):
        return ""


def _notes(runs: Sequence[Run]) -> str:
    return "".join(f"<h3>{escaped(run.name)}</h3>\n<dl>" + "".join(
        f"<dt>{escaped(head)}</dt><dd>{escaped(text, MOST_NOTE)}</dd>" for head, text in run.notes.items()) + "</dl>\n"
        for run in runs if run.notes)
