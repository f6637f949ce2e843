"""Line charts as SVG text, on logarithmic or linear axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log2, log10
from typing import Protocol

from scaffe import svg

COLOURS = ("#1f5fa8", "#c8501e", "#2e8540", "#7a3e9d", "#000000", "#9a7b00", "#0f8b8d", "#b03060")
LARGEST, LEAST_EXTENT, LEAST_SHARE = 1e100, 1e-100, 1e-12
"""Of values that can be drawn; of what a linear axis spans, also beside its values: less is a point."""
GRID = {"class_": "grid", "stroke": "#dddddd"}
LOGARITHMS = {2: log2, 10: log10}  # exact at powers, which log(value, base) is not


@dataclass(frozen=True, slots=True)
class Page:
    """The whole picture and the margins around the axes, in pixels. The legend stands on the right."""

    width: int = 760
    height: int = 460
    left: int = 80
    right: int = 150
    top: int = 40
    bottom: int = 60
    has_legend: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: its name in the legend, and its (x, y) in drawing order; above 0 where the axis is logarithmic."""

    name: str
    points: Sequence[tuple[float, float]]


class Scale(Protocol):
    """How values become distances along an axis, and which values it marks."""

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """Returns the values at the axis' two ends, around the data's least and greatest value."""

    def ticks(self, first: float, last: float) -> list[float]:
        """Returns the values to mark between the ends."""

    def position(self, value: float) -> float:
        """Maps a value to a distance, in any unit."""


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """An axis from a power of `base` (2 or 10) to another; marks every `step`-th power."""

    base: int = 10
    step: int = 1

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """Both values must be above 0; the ends are at least one power apart."""
        first = floor(self.position(low))
        return float(self.base**first), float(self.base ** max(ceil(self.position(high)), first + 1))

    def ticks(self, first: float, last: float) -> list[float]:
        powers = range(round(self.position(first)), round(self.position(last)) + 1, self.step)
        return [float(self.base) ** power for power in powers]

    def position(self, value: float) -> float:
        return LOGARITHMS[self.base](value)


@dataclass(frozen=True, slots=True)
class Linear:
    """An axis between multiples of 1, 2 or 5 times a power of ten; marks some `n_ticks` of them."""

    n_ticks: int = 6

    def ends(self, low: float, high: float) -> tuple[float, float]:
        is_wide = high - low > max(LEAST_EXTENT, abs(low) * LEAST_SHARE, abs(high) * LEAST_SHARE)
        step = self._step(high - low if is_wide else 0.0)
        first = floor(low / step + 1e-9) * step
        return first, max(ceil(high / step - 1e-9) * step, first + step)

    def ticks(self, first: float, last: float) -> list[float]:
        step = self._step(last - first)
        return [number * step for number in range(ceil(first / step - 1e-9), floor(last / step + 1e-9) + 1)]

    def position(self, value: float) -> float:
        return value

    def _step(self, extent: float) -> float:
        """The least of 1, 2, 5 times a power of ten that needs no more than n_ticks steps for the extent."""
        least = extent / self.n_ticks
        power = 10.0 ** floor(log10(least)) if least > 0 else 1.0
        return next((factor * power for factor in (1, 2, 5) if factor * power >= least * (1 - 1e-9)), 10 * power)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: how a marked value is written, its scale, and the label beside it."""

    text: Callable[[float], str] = field(default=lambda value: f"{value:g}")
    scale: Scale = field(default_factory=Linear)
    label: str = ""


def bytes_text(n_bytes: float) -> str:
    """Writes a number of bytes, with a binary unit where it comes out even: 64K, 256M."""
    whole = round(n_bytes)
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if whole >= factor and whole % factor == 0:
            return f"{whole // factor}{unit}"
    return str(whole)


def time_text(microseconds: float) -> str:
    """Writes a time in microseconds with its unit: 10 us, 1 ms, 2 s."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= factor:
            return f"{microseconds / factor:g} {unit}"
    return f"{microseconds:g} us"


SIZES = Axis(bytes_text, Logarithmic(2, step=2), "message size")
"""Message sizes in bytes, at powers of two."""
TIMES = Axis(time_text, Logarithmic(10))
"""Times in microseconds, at powers of ten."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over two axes, which reach as far as the points do.

    Attributes:
        title: above the curves.
        lines: one curve each, with at least one point.
        x: from left to right.
        y: upwards; its label stands above it.
        page: how large it is.
    """

    title: str
    lines: Sequence[Line]
    x: Axis = SIZES
    y: Axis = TIMES
    page: Page = field(default_factory=Page)

    def svg(self) -> str:
        """Draws the chart as one SVG document. Its parts have classes, so that a page's style sheet may recolour them:
        paper, grid, and curve with c0, c1, ... by line."""
        page = self.page
        frame = _Frame(page, [x for line in self.lines for x, _ in line.points],
                       [y for line in self.lines for _, y in line.points], self.x, self.y)
        body = [svg.text(page.left, 22, self.title, font_size=15), *frame.marks()]
        for index, line in enumerate(self.lines):
            colour = _colour(index)
            body.append(svg.polyline([(frame.x(x), frame.y(y)) for x, y in line.points], stroke_width=2, **colour))
            if page.has_legend:
                x, y = page.width - page.right + 12, page.top + 12 + 20 * index
                body += [svg.line(x, y, x + 24, y, stroke_width=3, **colour), svg.text(x + 30, y + 4, line.name)]
        return svg.document(page.width, page.height, body)

    def _repr_svg_(self) -> str:
        """The chart, as notebooks ask for it."""
        return self.svg()


class _Frame:
    """Places values on the page and draws the grid."""

    def __init__(self, page: Page, xs: Sequence[float], ys: Sequence[float], x_axis: Axis, y_axis: Axis) -> None:
        self._page, self._x_axis, self._y_axis = page, x_axis, y_axis
        self._x_ends, self._y_ends = x_axis.scale.ends(min(xs), max(xs)), y_axis.scale.ends(min(ys), max(ys))

    def x(self, value: float) -> float:
        page = self._page
        return page.left + _fraction(self._x_axis.scale, self._x_ends, value) * (page.width - page.left - page.right)

    def y(self, value: float) -> float:
        page = self._page
        below = page.height - page.bottom
        return below - _fraction(self._y_axis.scale, self._y_ends, value) * (below - page.top)

    def marks(self) -> list[str]:
        page = self._page
        low, high, right = page.height - page.bottom, page.top, page.width - page.right
        marks = []
        for value in self._x_axis.scale.ticks(*self._x_ends):
            x = self.x(value)
            marks += [svg.line(x, low, x, high, **GRID),
                      svg.text(x, low + 18, self._x_axis.text(value), text_anchor="middle")]
        for value in self._y_axis.scale.ticks(*self._y_ends):
            y = self.y(value)
            marks += [svg.line(page.left, y, right, y, **GRID),
                      svg.text(page.left - 8, y + 4, self._y_axis.text(value), text_anchor="end")]
        if self._y_axis.label:
            marks.append(svg.text(page.left, page.top - 6, self._y_axis.label))
        return [*marks, svg.text((page.left + right) / 2, low + 42, self._x_axis.label, text_anchor="middle")]


def _fraction(scale: Scale, ends: tuple[float, float], value: float) -> float:
    """How far along the axis a value lies: 0 at the first end, 1 at the last; in the middle where rounding makes the
    ends one."""
    first, last = (scale.position(end) for end in ends)
    return (scale.position(value) - first) / (last - first) if last != first else 0.5


def _colour(index: int) -> dict[str, str]:
    """The attributes of a line's curve, and of its line in the legend. Lines for which no colour is left are dashed."""
    number = index % len(COLOURS)
    dashes = {"stroke_dasharray": "7 4"} if index >= len(COLOURS) else {}
    return {"class_": f"curve c{number}", "stroke": COLOURS[number], **dashes}
