"""Line search where the slope jumps, for OWL-QN: halves the step until the value falls enough. Pure."""

from __future__ import annotations

import math
from collections.abc import Generator

from scaffe.training.lbfgs.wolfe import Point, Rules

FACTOR = 0.5


class Backtrack:
    """One line search along the projected path (Andrew & Gao, ICML 2007, 3.2).

    ``trials`` is sent (value, fall) of each step: what the pseudo-gradient says that the point reached falls by, a
    negative number, takes the place of slope times step.

    Args:
        start: the point that the search begins at, step 0.
        rules: ``c1``, ``max_trials`` and ``noise`` count.

    Attributes:
        low, n_trials, is_met: as ``wolfe.Wolfe`` has them.
    """

    def __init__(self, start: Point, rules: Rules) -> None:
        self._start, self._rules = start, rules
        self.low, self.n_trials, self.is_met = start, 0, False

    def trials(self, first: float) -> Generator[float, tuple[float, float], None]:
        """The steps to evaluate.

        Args:
            first: the first of them.
        """
        step, start = first, self._start
        while self.n_trials < self._rules.max_trials:
            value, fall = yield step
            self.n_trials += 1
            limit = start.value + self._rules.c1 * fall + self._rules.noise * abs(start.value)
            if math.isfinite(value) and fall < 0 and value <= limit:
                self.low, self.is_met = Point(step, value, fall), True
                return
            step *= FACTOR
