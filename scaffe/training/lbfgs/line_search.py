"""Line searches: for the strong Wolfe conditions, and, where the slope jumps (OWL-QN), by halving. Pure."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

LEAST_GROWTH, MOST_GROWTH = 1.1, 4.0  # of the interval, between two trials of the first phase
MARGIN = 0.1  # a trial keeps this share of the interval away from its ends
SHRINK = 0.66  # an interval that keeps more than this of its length in two trials is bisected


@dataclass(frozen=True)
class Rules:
    """When a step is good enough.

    Attributes:
        c1: share of the first slope's decrease that the value must have (Armijo).
        c2: share of the first slope that the slope may still have (curvature).
        max_trials: evaluations after which the search ends with the best point so far.
        noise: values that differ by less than this share are taken as equal, and slopes decide (Hager & Zhang, 2005,
            the approximate Wolfe condition): float32's sums say no more.
    """

    c1: float = 1e-4
    c2: float = 0.9
    max_trials: int = 20
    noise: float = 1e-7


@dataclass(frozen=True)
class Point:
    """A point on the line: the step's factor, the value and the slope there."""

    step: float
    value: float
    slope: float

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.value) and math.isfinite(self.slope)


Search = Generator[float, tuple[float, float], None]


class Wolfe:
    """One line search: yields steps from ``trials`` and is sent (value, slope) of each.

    Args:
        start: the point that the search begins at, step 0; its slope is negative.

    Attributes:
        low: the best point so far that falls enough; the result once ``trials`` ends. Step 0 means that none was found.
        is_met: whether ``low`` meets both conditions.
    """

    def __init__(self, start: Point, rules: Rules) -> None:
        self._start, self._rules = start, rules
        self.low, self.n_trials, self.is_met = start, 0, False
        self._noise = rules.noise * abs(start.value)

    def trials(self, first: float) -> Search:
        """The steps to evaluate, from the first on."""
        before, step = self._start, first
        while self.n_trials < self._rules.max_trials:
            here = yield from self._look(step)
            if not self._falls(here) or (self.n_trials > 1 and self._is_above(here, before)):
                yield from self._zoom(before, here)
                return
            self.low = here
            if self._is_flat(here):
                self.is_met = True
                return
            if here.slope >= 0:
                yield from self._zoom(here, before)
                return
            span = here.step - before.step
            least, most = here.step + LEAST_GROWTH * span, here.step + MOST_GROWTH * span
            step = _within(cubic(before, here), least, most, most)
            before = here

    def _zoom(self, low: Point, high: Point) -> Search:
        self.low, spans = low, [math.inf, math.inf]
        while self.n_trials < self._rules.max_trials:
            span = abs(high.step - low.step)
            step = _inside(low, high) if span < SHRINK * spans[-2] else (low.step + high.step) / 2
            if step in (low.step, high.step):
                return  # no number between them
            spans.append(span)
            here = yield from self._look(step)
            if not self._falls(here) or self._is_above(here, low):
                high = here
                continue
            self.low = here
            if self._is_flat(here):
                self.is_met = True
                return
            if here.slope * (high.step - low.step) >= 0:
                high = low
            low = here

    def _look(self, step: float) -> Generator[float, tuple[float, float], Point]:
        value, slope = yield step
        self.n_trials += 1
        return Point(step, float(value), float(slope))

    def _falls(self, here: Point) -> bool:
        """Armijo's condition, or the approximate one where values are too close to tell."""
        start, c1 = self._start, self._rules.c1
        if not here.is_finite:
            return False
        return here.value <= start.value + c1 * here.step * start.slope or (
            here.value <= start.value + self._noise and here.slope <= (2 * c1 - 1) * start.slope)

    def _is_above(self, here: Point, other: Point) -> bool:
        if abs(here.value - other.value) > self._noise:
            return here.value >= other.value
        return (here.step - other.step) * (here.slope + other.slope) > 0  # the trapezoid says that it rises

    def _is_flat(self, here: Point) -> bool:
        return abs(here.slope) <= -self._rules.c2 * self._start.slope


def _inside(low: Point, high: Point) -> float:
    """The cubic's minimum, kept away from both ends; the middle where an end is not finite."""
    if not high.is_finite:
        return (low.step + high.step) / 2
    ends = sorted((low.step, high.step))
    margin = MARGIN * (ends[1] - ends[0])
    return _within(cubic(low, high), ends[0] + margin, ends[1] - margin, sum(ends) / 2)


def _within(step: float, least: float, most: float, otherwise: float) -> float:
    return otherwise if math.isnan(step) else min(max(step, least), most)


def cubic(a: Point, b: Point) -> float:
    """The minimum of the cubic with both points' values and slopes (Nocedal & Wright, 3.59); nan if it has none."""
    if a.step == b.step:
        return math.nan
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.step - b.step)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return math.nan
    d2 = math.copysign(math.sqrt(square), b.step - a.step)
    below = b.slope - a.slope + 2 * d2
    return b.step - (b.step - a.step) * (b.slope + d2 - d1) / below if below else math.nan


FACTOR = 0.5


class Backtrack(Wolfe):
    """One line search along the projected path (Andrew & Gao, ICML 2007, 3.2).

    ``trials`` is sent (value, fall) of each step: what the pseudo-gradient says that the point reached falls by, a
    negative number, takes the place of slope times step.

    ``rules.c1``, ``max_trials`` and ``noise`` count.
    """

    def trials(self, first: float) -> Search:
        """The steps to evaluate, from the first on."""
        step, start = first, self._start
        while self.n_trials < self._rules.max_trials:
            value, fall = yield step
            self.n_trials += 1
            limit = start.value + self._rules.c1 * fall + self._noise
            if math.isfinite(value) and fall < 0 and value <= limit:
                self.low, self.is_met = Point(step, value, fall), True
                return
            step *= FACTOR
