"""Which interval of the flat parameters is which table; and the rules by which shards and replicas update them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.jit import compiled
from scaffe.layers.kernels.specs import Segment
from scaffe.training.update_rules import Hyper, UpdateRule
from scaffe.training.update_rules.base import regularized


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


class LocalUpdate(UpdateRule):
    """h ← h + g;  w ← w - rate · g, with g scaled and decayed: a replica's local step, not a type of solver.

    Its one history is the sum of the gradients since the last push (Dean et al., NIPS 2012, Algorithm 1.1).
    """

    learns_frozen = False

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        self.name = "LocalUpdate"

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """See UpdateRule. The gradients are left as they are."""
        one = w.dtype.type
        _local_update(w, g, histories[0], one(hyper.scale), one(hyper.decay), hyper.l1, one(hyper.rate))


@compiled
def _local_update(w: np.ndarray, g: np.ndarray, unpushed: np.ndarray, scale: float, decay: float, l1: bool,
                  rate: float) -> None:
    for i in range(w.size):
        gradient = regularized(w[i], g[i], decay, l1, scale)
        unpushed[i] += gradient
        w[i] -= rate * gradient


@dataclass
class Schedule:
    """Decides when one replica fetches and pushes.

    Attributes:
        is_fetching: a fetch has been started, and what it brings not been taken over.
        is_due: a push is to start as soon as it can.
        n_unpushed: gradients that have accumulated since the last push started.
    """

    n_fetch: int
    n_push: int
    is_fetching: bool = False
    is_due: bool = False
    n_unpushed: int = 0

    def takes_fetched(self, has_come: bool) -> bool:
        """Whether to take over, before a step, the fetched parameters, if what was asked for last has come."""
        if not (self.is_fetching and has_come):
            return False
        self.is_fetching = False
        return True

    def starts_fetch(self, step: int) -> bool:
        """Whether to start a fetch before step ``step``, after ``takes_fetched``; never while another is under way."""
        if self.is_fetching or step % self.n_fetch:
            return False
        self.is_fetching = True
        return True

    def stepped(self, step: int) -> None:
        self.n_unpushed += 1
        self.is_due = self.is_due or step % self.n_push == 0

    def starts_push(self, is_free: bool) -> bool:
        """Whether to push the accumulated gradients, if the push before is over. Called after ``stepped``."""
        if not (self.is_due and is_free):
            return False
        self.is_due, self.n_unpushed = False, 0
        return True

    def synchronizes(self) -> bool:
        """Whether to push the accumulated gradients before all replicas synchronize. A fetch under way is forgotten."""
        had = self.n_unpushed > 0
        self.is_fetching, self.is_due, self.n_unpushed = False, False, 0
        return had
