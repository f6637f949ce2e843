"""Draws a part of a trace as SVG or PNG: a panel for each rank, with a row for each of its threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from scaffe import svg
from scaffe.errors import UserError
from scaffe.pictures.hidden import WAIT, Hidden, hidden

WIDTH, LEFT, RIGHT, ROW, HEADING, GAP = 1220.0, 80.0, 20.0, 22.0, 24.0, 8.0
TITLE_Y, LEGEND_Y, AXIS, N_TICKS = 28.0, 46.0, 20.0, 12
NAME_SIZE, PADDING, LEAST_PIXELS = 10.0, 3.0, 0.15
LEAST_MS = 1e-6  # that a picture shows
COLOURS = {"forward": "#1f5fa8", "backward": "#2e8540", "update": "#b03060", "data": "#8a6d00", "wait": "#c8501e",
           "communication": "#c8501e", "broadcast": "#7a3e9d", "gather": "#7a3e9d", "reduce": "#0b7477",
           "test": "#9c5c12", "snapshot": "#4d6d82"}
OTHER = "#6b6f75"
SAID = {"wait": "wait for communication"}  # in the legend; other activities are called as in the trace
GRID = {"class_": "grid", "stroke": "#dddddd"}
Event = dict[str, Any]


@dataclass(frozen=True)
class Window:
    """What of a trace is drawn.

    Attributes:
        start, end: in milliseconds.
        title: stands above the picture.
        iterations: (name, its end in milliseconds), one after the other.
    """

    start: float
    end: float
    title: str = ""
    iterations: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Bar:
    """One span: its place in pixels, its colour (#rrggbb), what it was, and its name with the name's middle, where it
    fits."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    tip: str
    name: str = ""
    name_x: float = 0.0


@dataclass(frozen=True)
class Picture:
    """A drawn trace, in pixels: the whole size, the bars, and the elements around them."""

    width: float
    height: float
    bars: tuple[Bar, ...]
    around: tuple[str, ...]


def whole(events: Sequence[Event], start: float = 0.0, end: float | None = None) -> Window:
    """The window between two times in milliseconds, at most up to the last span."""
    last = max((_end(e) for e in events if e.get("ph") == "X"), default=0.0)
    end = last if end is None else end
    return Window(start, end, f"{start:,.1f} ms to {end:,.1f} ms")


def lay_out(events: Sequence[Event], window: Window) -> Picture:
    """The picture of a window. Raises UserError where the trace has no spans there."""
    start, end = window.start, window.end
    shown = [e for e in events if e.get("ph") == "X" and _end(e) > start and e["ts"] / 1e3 < end]
    if not shown or end - start < LEAST_MS:
        raise UserError(f"the trace has no spans between {start:g} and {end:g} ms")
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events
             if e.get("ph") != "X" and e.get("name") == "thread_name"}
    ranks: dict[int, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in sorted(shown, key=lambda e: (e["ts"], -e["dur"])):
        ranks[event["pid"]][event["tid"]].append(event)
    around, y = _head(window, {_kind(e) for e in shown})
    bars: list[Bar] = []
    panels: list[tuple[float, float]] = []
    for rank, threads in sorted(ranks.items()):
        around += _heading(rank, y + HEADING - 8, _communication(threads, {t: names.get((rank, t)) for t in threads},
                                                                 window))
        y += HEADING
        panels.append((y - PADDING, y + ROW * len(threads)))
        for thread, spans in sorted(threads.items()):
            around.append(svg.text(LEFT - 8, y + 13, names.get((rank, thread), ""), text_anchor="end"))
            bars += _row(spans, y, window)
            y += ROW
        y += GAP
    return Picture(WIDTH, y + AXIS, tuple(bars), (*_axis(window, panels), *around))


def _head(window: Window, kinds: set[str]) -> tuple[list[str], float]:
    """Title and legend, and where the panels begin."""
    parts = [svg.text(LEFT, TITLE_Y, window.title, font_size=16, font_weight="bold")]
    others = sorted(kinds - set(COLOURS))
    said = [(SAID.get(kind, kind), colour) for kind, colour in COLOURS.items() if kind in kinds]
    said += [(", ".join(others[:4]) + (", ..." if others[4:] else ""), OTHER)] if others else []
    x, y = LEFT, LEGEND_Y
    for text, colour in said:
        if x + 40 + svg.text_width(text) > WIDTH and x > LEFT:
            x, y = LEFT, y + 18
        parts += [svg.rectangle(x, y, 12, 12, class_="key", rx=2, fill=colour), svg.text(x + 18, y + 10.5, text)]
        x += 40 + svg.text_width(text)
    return parts, y + 18 + (18 if window.iterations else 4)


def _heading(rank: int, y: float, said: Hidden) -> list[str]:
    name = f"rank {rank}"
    return [svg.text(LEFT, y, name, font_weight="bold", font_size=13),
            svg.text(LEFT + svg.text_width(name, 15) + 12, y, str(said))]


def _communication(threads: dict[int, list[Event]], names: dict[int, str | None], window: Window) -> Hidden:
    """What one rank communicated in the window, by its threads' spans and names."""
    spans = {names[thread]: [(_kind(e), (e["ts"] / 1e3, _end(e))) for e in events]
             for thread, events in threads.items()}
    return hidden(spans.get("main", []), [span for _, span in spans.get("helper", [])], (window.start, window.end))


def _axis(window: Window, panels: Sequence[tuple[float, float]]) -> list[str]:
    """Marks of time from the window's start, and where iterations end, through panels of these tops and bottoms."""
    parts, top, bottom = [], panels[0][0] - HEADING, panels[-1][1]
    step = _step((window.end - window.start) / N_TICKS)
    for i in range(floor((window.end - window.start) / step + 1e-9) + 1):
        x = _x(window.start + i * step, window)
        parts += [*(svg.line(x, first, x, last, **GRID) for first, last in panels),
                  svg.text(x, bottom + 16, f"{i * step:.10g}" + (" ms" if i == 0 else ""), text_anchor="middle")]
    before = window.start
    for name, end in window.iterations:
        x, left = _x(end, window), _x(before, window)
        if svg.text_width(name) < x - left:
            parts.append(svg.text((left + x) / 2, top - 4, name, text_anchor="middle"))
        ways = [(top - 14, top + 2), *panels]
        parts += [svg.line(x, first, x, last, stroke="#777777", stroke_dasharray="4 3") for first, last in ways]
        before = end
    return parts


def _step(least: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is no less."""
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def _row(spans: Sequence[Event], y: float, window: Window) -> list[Bar]:
    """The bars of one thread, by their start; those inside another lie on it."""
    bars = []
    for i, event in enumerate(spans):
        x, right = (_x(time, window) for time in (event["ts"] / 1e3, _end(event)))
        if right - x >= LEAST_PIXELS:
            name, middle = _fitting(event["name"], *_gap(x, right, spans[i + 1:i + 400], window))
            bars.append(Bar(x, y, right - x, ROW - 4, COLOURS.get(_kind(event), OTHER),
                            f"{event['name']}: {event['dur'] / 1e3:.3f} ms", name, middle))
    return bars


def _gap(x: float, right: float, later: Sequence[Event], window: Window) -> tuple[float, float]:
    """The widest part of a bar that no later one covers."""
    best, free = (x, x), x
    for event in later:
        start = _x(event["ts"] / 1e3, window)
        if start >= right:
            break
        best, free = max(best, (free, start), key=lambda gap: gap[1] - gap[0]), max(free, _x(_end(event), window))
    return max(best, (free, right), key=lambda gap: gap[1] - gap[0])


def _fitting(name: str, left: float, right: float) -> tuple[str, float]:
    """The name, or that of its layer alone, or nothing: what fits between two edges; and the middle between them."""
    kind, _, layer = name.partition(" ")
    shown = next((text for text in (name, kind if kind == WAIT else layer)
                  if text and svg.text_width(text, NAME_SIZE) + 2 * PADDING <= right - left), "")
    return shown, (left + right) / 2


def _x(time: float, window: Window) -> float:
    share = (min(max(time, window.start), window.end) - window.start) / (window.end - window.start)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"]) / 1e3


def _kind(event: Event) -> str:
    return str(event["name"]).partition(" ")[0]


def to_svg(picture: Picture) -> bytes:
    """The SVG file's content."""
    return _document(picture).encode()


def to_png(picture: Picture) -> bytes:
    """The PNG file's content. Raises UserError as ``scaffe.svg.png``."""
    return svg.png(_document(picture), picture.width, ceil(picture.height), UserError)


def _document(picture: Picture) -> str:
    return svg.document(picture.width, ceil(picture.height), elements(picture))


def elements(picture: Picture) -> list[str]:
    """The picture's elements, for a document that has more."""
    bars = []
    for bar in picture.bars:
        bars.append(svg.rectangle(bar.x, bar.y, bar.width, bar.height, bar.tip, class_="bar", fill=bar.colour))
        if bar.name:
            bars.append(svg.text(bar.name_x, bar.y + 12.5, bar.name, class_="in", fill="white", font_size=NAME_SIZE,
                                 text_anchor="middle", pointer_events="none"))
    return [*picture.around, *bars]
