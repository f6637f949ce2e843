"""Draws a trace of spans as PNG or SVG, with a row for each thread of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.data.records.decode import opencv
from scaffe.errors import UserError
from scaffe.markup import escaped

WIDTH, LEFT, TOP, ROW, MARGIN, LEAST_PIXELS = 1200, 130, 30, 22, 10, 0.15
COLOURS = {"forward": "#1f5fa8", "backward": "#2e8540", "data": "#9a7b00", "wait": "#c8501e",
           "communication": "#c8501e", "broadcast": "#7a3e9d", "gather": "#7a3e9d", "reduce": "#0f8b8d",
           "update": "#b03060"}
OTHER = "#888888"
LEAST_MS = 1e-6  # that a picture shows


@dataclass(frozen=True)
class Bar:
    """One span: its place in pixels, its colour (#rrggbb) and what it was."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str


@dataclass(frozen=True)
class Picture:
    """A drawn trace, in pixels.

    Attributes:
        width, height: of the whole.
        labels: (x, y of the baseline, text, whether it ends at x instead of beginning there).
        bars: the spans.
    """

    width: int
    height: int
    labels: tuple[tuple[float, float, str, bool], ...]
    bars: tuple[Bar, ...]


def lay_out(events: Sequence[dict[str, Any]], start_ms: float = 0.0, end_ms: float | None = None) -> Picture:
    """The picture of a trace's events between two times. Raises UserError where nothing lies between them."""
    spans = [e for e in events if e.get("ph") == "X"]
    end_ms = max((e["ts"] + e["dur"] for e in spans), default=0.0) / 1e3 if end_ms is None else end_ms
    shown = [e for e in spans if (e["ts"] + e["dur"]) / 1e3 > start_ms and e["ts"] / 1e3 < end_ms]
    if not shown or end_ms - start_ms < LEAST_MS:
        raise UserError(f"the trace has no spans between {start_ms:g} and {end_ms:g} ms")
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
               if e.get("ph") != "X" and e.get("name") == "thread_name"}
    rows = {key: index for index, key in enumerate(sorted({(e["pid"], e["tid"]) for e in shown}))}
    labels = [(LEFT, 18, f"{start_ms:.1f} ms", False), (WIDTH - MARGIN, 18, f"{end_ms:.1f} ms", True)]
    labels += [(8, TOP + ROW * i + 15, f"rank {rank} {threads.get((rank, thread), '')}", False)
               for (rank, thread), i in rows.items()]
    bars = [_bar(event, TOP + ROW * rows[event["pid"], event["tid"]], start_ms, end_ms) for event in shown]
    return Picture(WIDTH, TOP + ROW * len(rows) + MARGIN, tuple(labels),
                   tuple(bar for bar in bars if bar.width >= LEAST_PIXELS))


def _bar(event: dict[str, Any], y: int, start_ms: float, end_ms: float) -> Bar:
    scale = (WIDTH - LEFT - MARGIN) / (end_ms - start_ms)
    x = LEFT + max(event["ts"] / 1e3 - start_ms, 0.0) * scale
    right = LEFT + (min((event["ts"] + event["dur"]) / 1e3, end_ms) - start_ms) * scale
    return Bar(x, y, right - x, ROW - 4, COLOURS.get(event["name"].partition(" ")[0], OTHER),
               f"{event['name']}: {event['dur'] / 1e3:.3f} ms")


MAX_HEIGHT = 30000
BLACK, FONT_SCALE, SHIFT = (0, 0, 0), 0.4, 4  # OpenCV takes coordinates in units of 2**-SHIFT pixels


def to_png(picture: Picture) -> bytes:
    """The PNG file's content.

    Raises:
        UserError: OpenCV is not installed, or the picture has too many rows for it; SVG has neither limit.
    """
    cv2 = opencv()
    if picture.height > MAX_HEIGHT:
        raise UserError(f"the picture is {picture.width} x {picture.height} pixels; draw an .svg")
    canvas = np.full((picture.height, picture.width, 3), 255, np.uint8)
    for bar in picture.bars:
        cv2.rectangle(canvas, *_corners(bar), tuple(bytes.fromhex(bar.colour[1:])[::-1]), -1, cv2.LINE_8, SHIFT)
    for x, y, text, ends in picture.labels:
        (width, _), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE, 1)
        place = (round(x - width if ends else x), round(y))
        cv2.putText(canvas, text, place, cv2.FONT_HERSHEY_SIMPLEX, FONT_SCALE, BLACK, 1, cv2.LINE_AA)
    return bytes(cv2.imencode(".png", canvas)[1])


def _corners(bar: Bar) -> tuple[tuple[int, int], tuple[int, int]]:
    """Opposite corners, both inside the bar; a bar narrower than a pixel still fills one."""
    left, top = round(bar.x * 2**SHIFT), round(bar.y * 2**SHIFT)
    right = max(round((bar.x + bar.width - 1) * 2**SHIFT), left)
    return (left, top), (right, round((bar.y + bar.height - 1) * 2**SHIFT))


def to_svg(picture: Picture) -> bytes:
    """The SVG file's content."""
    labels = [f'<text x="{x:g}" y="{y:g}"{" text-anchor=" + chr(34) + "end" + chr(34) if ends else ""}>'
              f"{escaped(text)}</text>" for x, y, text, ends in picture.labels]
    body = "\n".join([*labels, *map(_rectangle, picture.bars)])
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{picture.width}" height="{picture.height}" '
            f'viewBox="0 0 {picture.width} {picture.height}" font-family="sans-serif" font-size="12">\n'
            f'<rect class="paper" width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n').encode()


def _rectangle(bar: Bar) -> str:
    return (f'<rect x="{bar.x:.2f}" y="{bar.y:g}" width="{bar.width:.2f}" height="{bar.height:g}" '
            f'fill="{bar.colour}"><title>{escaped(bar.title)}</title></rect>')
