"""The CPU's sweep of an update rule over the flat buffers: one call a parameter, compiled by the rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Segment:
    """An interval of the flat buffers with multipliers of its own.

    Attributes:
        start, stop: its place, in elements.
        lr_mult, decay_mult: factors on the learning rate and on the weight decay.
    """

    start: int
    stop: int
    lr_mult: float = 1.0
    decay_mult: float = 1.0


class UpdatePlan:
    """A rule over segments, again and again.

    Args:
        rule: has ``update(w, g, histories, hyper)`` on flat arrays.
        segments: what of the buffers to update.
    """

    def __init__(self, rule: Any, segments: Sequence[Segment]) -> None:
        self._rule, self._segments = rule, segments

    def run(self, w: np.ndarray, g: np.ndarray, histories: Sequence[np.ndarray], hyper: Any,
            factor: float = 1.0) -> None:
        """Update the segments of w and the histories by g · factor."""
        for s in self._segments:
            place = slice(s.start, s.stop)
            own = replace(hyper, rate=hyper.rate * s.lr_mult, decay=hyper.decay * s.decay_mult,
                          scale=hyper.scale * factor)
            self._rule.update(w[place], g[place], [h[place] for h in histories], own)


def clip_factor(diff: np.ndarray, limit: float, mean: float) -> float:
    """What brings the norm of mean · diff down to the limit; 1 where it is no larger."""
    norm = float(np.sqrt(np.dot(diff, diff))) * mean
    return limit / norm if norm > limit else 1.0
