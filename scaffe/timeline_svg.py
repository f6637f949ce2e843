"""A trace of spans as an SVG picture: a row for each thread of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from scaffe.errors import UserError

WIDTH, LEFT, TOP, ROW, LEAST_PIXELS = 1200, 130, 30, 22, 0.15
COLOURS = {"forward": "#1f5fa8", "backward": "#2e8540", "data": "#9a7b00", "wait": "#c8501e",
           "communication": "#c8501e", "broadcast": "#7a3e9d", "gather": "#7a3e9d", "reduce": "#0f8b8d",
           "update": "#b03060"}
OTHER = "#888888"


def draw(events: Sequence[dict[str, Any]], start_ms: float = 0.0, end_ms: float | None = None) -> str:
    """The picture of a trace's events between two times. Raises UserError where nothing lies between them."""
    spans = [e for e in events if e.get("ph") == "X"]
    end_ms = max((e["ts"] + e["dur"] for e in spans), default=0.0) / 1e3 if end_ms is None else end_ms
    shown = [e for e in spans if (e["ts"] + e["dur"]) / 1e3 > start_ms and e["ts"] / 1e3 < end_ms]
    if not shown:
        raise UserError(f"the trace has no spans between {start_ms:g} and {end_ms:g} ms")
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    rows = {key: index for index, key in enumerate(sorted({(e["pid"], e["tid"]) for e in shown}))}
    scale = (WIDTH - LEFT - 10) / (end_ms - start_ms)
    height = TOP + ROW * len(rows) + 10
    body = [f'<text x="{LEFT}" y="18">{start_ms:.1f} ms</text>'
            f'<text x="{WIDTH - 10}" y="18" text-anchor="end">{end_ms:.1f} ms</text>']
    body += [f'<text x="8" y="{TOP + ROW * i + 15}">rank {rank} {escape(threads.get((rank, thread), ""))}</text>'
             for (rank, thread), i in rows.items()]
    for event in shown:
        x = LEFT + max(event["ts"] / 1e3 - start_ms, 0.0) * scale
        right = LEFT + (min((event["ts"] + event["dur"]) / 1e3, end_ms) - start_ms) * scale
        if right - x >= LEAST_PIXELS:
            body.append(_span(event, x, right - x, TOP + ROW * rows[event["pid"], event["tid"]]))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
            'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")


def _span(event: dict[str, Any], x: float, width: float, y: int) -> str:
    colour = COLOURS.get(event["name"].split()[0], OTHER)
    return (f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 4}" fill="{colour}"><title>'
            f'{escape(event["name"])}: {event["dur"] / 1e3:.3f} ms</title></rect>')
