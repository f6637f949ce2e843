"""Line charts on logarithmic axes, as SVG text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2, log10

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 460, 80, 150, 40, 60
COLOURS = ("#1f5fa8", "#c8501e", "#2e8540", "#7a3e9d", "#000000", "#9a7b00", "#0f8b8d", "#b03060")


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: its name in the legend and (x, y) points, all above 0."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Units:
    """What the axes say: the x axis' label, the text at 2**power every `x_step` powers, the text at 10**power."""

    x_label: str
    x_text: Callable[[int], str]
    y_text: Callable[[float], str]
    x_step: int = 1


def bytes_text(n_bytes: int) -> str:
    """`n_bytes` with a binary unit where it comes out even: 64K, 256M."""
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if n_bytes >= factor and n_bytes % factor == 0:
            return f"{n_bytes // factor}{unit}"
    return str(n_bytes)


def time_text(microseconds: float) -> str:
    """A time with its unit: 10 us, 1 ms, 2 s."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= factor:
            return f"{microseconds / factor:g} {unit}"
    return f"{microseconds:g} us"


MESSAGES = Units("message size", bytes_text, time_text, x_step=2)
"""Sizes in bytes, times in microseconds."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over logarithmic axes: powers of two from left to right, powers of ten upwards."""

    title: str
    lines: Sequence[Line]
    units: Units = MESSAGES

    def svg(self) -> str:
        """The chart as one SVG document."""
        axes = _Axes([x for line in self.lines for x, _ in line.points],
                     [y for line in self.lines for _, y in line.points], self.units)
        body = [f'<text x="{LEFT}" y="22" font-size="15">{escape(self.title)}</text>', *axes.marks()]
        for index, line in enumerate(self.lines):
            body += _curve(line, COLOURS[index % len(COLOURS)], TOP + 12 + 20 * index, axes)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
                f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
                + "\n".join(body) + "\n</svg>\n")


class _Axes:
    """Places values on the page and draws the grid."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], units: Units) -> None:
        self._units = units
        self._x_from, self._x_to = floor(log2(min(xs))), max(ceil(log2(max(xs))), floor(log2(min(xs))) + 1)
        self._y_from, self._y_to = floor(log10(min(ys))), max(ceil(log10(max(ys))), floor(log10(min(ys))) + 1)

    def x(self, value: float) -> float:
        return LEFT + (log2(value) - self._x_from) / (self._x_to - self._x_from) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (log10(value) - self._y_from) / (self._y_to - self._y_from) * (HEIGHT - TOP - BOTTOM)

    def marks(self) -> list[str]:
        low, high, right = HEIGHT - BOTTOM, TOP, WIDTH - RIGHT
        marks = []
        for power in range(self._x_from, self._x_to + 1, self._units.x_step):
            x = self.x(2.0 ** power)
            marks.append(_grid(x, low, x, high) + _text(x, low + 18, self._units.x_text(2 ** power), "middle"))
        for power in range(self._y_from, self._y_to + 1):
            y = self.y(10.0 ** power)
            marks.append(_grid(LEFT, y, right, y) + _text(LEFT - 8, y + 4, self._units.y_text(10.0 ** power), "end"))
        return [*marks, _text((LEFT + right) / 2, HEIGHT - 18, self._units.x_label, "middle")]


def _curve(line: Line, colour: str, legend_y: float, axes: _Axes) -> list[str]:
    points = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in line.points)
    x = WIDTH - RIGHT + 12
    return [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<line x1="{x}" y1="{legend_y}" x2="{x + 24}" y2="{legend_y}" stroke="{colour}" stroke-width="3"/>'
            + _text(x + 30, legend_y + 4, line.name, "start")]


def _grid(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
