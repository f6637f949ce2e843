"""Update rules on the CPU: ``update_plan`` and ``clip_factor``, the two functions that a device's backend has too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scaffe.layers.kernels.specs import Segment
from scaffe.training.update_rules.base import Hyper, UpdateRule


class UpdatePlan:
    """Applies a rule to the same segments at every update: one compiled call per segment.

    Args:
        rule: the update rule.
        segments: the intervals to update, each with its lr_mult and decay_mult.
    """

    def __init__(self, rule: UpdateRule, segments: Sequence[Segment]) -> None:
        self._rule, self._segments = rule, segments

    def run(self, w: np.ndarray, g: np.ndarray, histories: Sequence[np.ndarray], hyper: Hyper,
            factor: float = 1.0) -> None:
        """Update the segments of w and of the histories in place.

        Args:
            w, g, histories: parameters, summed gradients, histories: flat arrays of one length and floating dtype.
            hyper: the numbers of this update.
            factor: multiplies every gradient, in addition to ``hyper.scale``.
        """
        for s in self._segments:
            place = slice(s.start, s.stop)
            own = replace(hyper, rate=hyper.rate * s.lr_mult, decay=hyper.decay * s.decay_mult,
                          scale=hyper.scale * factor)
            self._rule.update(w[place], g[place], [h[place] for h in histories], own)


update_plan = UpdatePlan


def clip_factor(diff: np.ndarray, limit: float, mean: float) -> float:
    """The factor that reduces the L2 norm of mean · diff to the limit; 1 if the norm is not above it.

    Args:
        diff: summed gradients, a flat floating array.
        limit: the largest norm allowed, 0 or above.
        mean: the factor that turns the sums in ``diff`` into means (1 / ranks).
    """
    norm = float(np.sqrt(np.dot(diff, diff))) * mean
    return limit / norm if norm > limit else 1.0
