"""Layout: which interval of the flat parameters is which table; and the solver's update rule applied to a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.layers.kernels.specs import Segment
from scaffe.training.update_rules import Hyper, UpdateRule


@dataclass(frozen=True)
class Place:
    """An interval of the flat parameters that is one table, of one row.

    Attributes:
        start, stop: in elements of the flat buffers.
        segments: the parameters in it that are updated, in elements from ``start``; ascending.
    """

    name: str
    start: int
    stop: int
    segments: tuple[Segment, ...]

    @property
    def n_elems(self) -> int:
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Layout:
    """All tables of a net. Workers derive it from their net and send it to the servers.

    Attributes:
        places: the tables, in layer order; disjoint.
        folder: where a file is to have them; empty: they are in memory.
    """

    dtype: str
    places: tuple[Place, ...]
    folder: str = ""


def parts_of(segments: Sequence[Segment], first: int, n_elems: int) -> list[Segment]:
    """The parts of segments that lie in [first, first + n_elems), in elements from ``first``."""
    stop = first + n_elems
    return [Segment(max(s.start, first) - first, min(s.stop, stop) - first, s.lr_mult, s.decay_mult)
            for s in segments if s.start < stop and s.stop > first]


class ShardRule:
    """Applies the solver's update rule to a table of parameters; an update is a gradient.

    Args:
        param: the SolverParameter message: its weight decay, its kind, its delta.
        decays: whether the weight decay is added here; if not, the workers have done so.

    Attributes:
        n_histories: the rule's, and one more with ``snapshot_diff``: each element's last step.
        merges: whether one step with the sum of several workers' gradients does what a step with each does.
    """

    def __init__(self, rule: UpdateRule, param: Any, segments: Sequence[Segment], scale: float,
                 decays: bool = True) -> None:
        self._rule, self._param, self._segments, self._scale = rule, param, segments, scale
        self._decay = param.weight_decay if decays else 0.0
        self._keeps_step = bool(param.snapshot_diff)
        self.n_histories = rule.n_histories + self._keeps_step
        self.merges = rule.name == "SGD" and not param.momentum and not self._decay

    def step(self, values: np.ndarray, update: np.ndarray, histories: list[np.ndarray], first: int,
             settings: tuple[float, float]) -> None:
        """See the server's ``Rule``. ``settings``: the learning rate, and the updates done before this one.
        Raises UserError if the rule divides by zero."""
        rate, iteration = settings
        is_l1 = self._param.regularization_type == "L1"
        try:
            for s in parts_of(self._segments, first, values.size):
                place = slice(s.start, s.stop)
                hyper = Hyper(rate * s.lr_mult, self._decay * s.decay_mult, is_l1, self._scale, int(iteration),
                              self._keeps_step)
                self._rule.update(values[place], update[place], [h[place] for h in histories], hyper)
                if self._keeps_step:
                    histories[-1][place] = update[place]
        except ZeroDivisionError as error:
            raise UserError(f"iteration {iteration:g}: {self._rule.name}'s update divides by zero: the solver's delta "
                            f"is {self._param.delta:g}, momentum {self._param.momentum:g}") from error
