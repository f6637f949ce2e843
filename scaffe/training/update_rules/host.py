"""Update rules in the host's memory: the same two functions that a device's backend has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scaffe.layers.kernels.specs import Segment
from scaffe.training.update_rules.base import Hyper, UpdateRule


class UpdatePlan:
    """A rule over segments, again and again: one compiled call a segment.

    Args:
        rule: the rule.
        segments: what of the arrays to update.
    """

    def __init__(self, rule: UpdateRule, segments: Sequence[Segment]) -> None:
        self._rule, self._segments = rule, segments

    def run(self, w: np.ndarray, g: np.ndarray, histories: Sequence[np.ndarray], hyper: Hyper,
            factor: float = 1.0) -> None:
        """Update the segments of w and of the histories by g · factor.

        Args:
            w, g, histories: flat arrays of one length and floating dtype.
            hyper: the numbers of this update.
            factor: on every gradient, beside ``hyper.scale``.
        """
        for s in self._segments:
            place = slice(s.start, s.stop)
            own = replace(hyper, rate=hyper.rate * s.lr_mult, decay=hyper.decay * s.decay_mult,
                          scale=hyper.scale * factor)
            self._rule.update(w[place], g[place], [h[place] for h in histories], own)


update_plan = UpdatePlan


def clip_factor(diff: np.ndarray, limit: float, mean: float) -> float:
    """What brings the L2 norm of mean · diff down to the limit; 1 where it is no larger.

    Args:
        diff: a flat array.
        limit: of the norm, above 0.
        mean: factor that makes a mean of the sums in ``diff``.
    """
    norm = float(np.sqrt(np.dot(diff, diff))) * mean
    return limit / norm if norm > limit else 1.0
