"""What an update rule is, and how a plan applies it on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from scaffe.errors import UserError
from scaffe.jit import compiled
from scaffe.layers.base.registry import Registry
from scaffe.layers.kernels.cpu.threads.parts import in_parts
from scaffe.layers.kernels.specs import Segment

update_rules: Registry[type[UpdateRule]] = Registry("solver type", "scaffe.training.update_rules")


@dataclass(frozen=True)
class Hyper:
    """The numbers of one update, the same for all parameters.

    Attributes:
        l1: L1 decay, by the weights' signs, instead of L2 decay, by the weights.
        scale: factor on every gradient before anything else: 1 / (iter_size · ranks), times those of loss scaling and
            clipping.
        iteration: iterations done before this one.
        keeps_step: write the step, the amount subtracted from w, into g, as Caffe does; else g is left as it is.
    """

    rate: float
    decay: float
    l1: bool
    scale: float
    iteration: int
    keeps_step: bool = False


class UpdateRule:
    """The arithmetic of one solver type on flat arrays. Subclasses give a kernel, or override ``update``.

    Attributes:
        n_histories: how many arrays of the parameters' length the rule keeps between updates.
        learns_frozen: whether histories change for parameters whose learning rate is 0.
        kernel: updates (w, g, *histories) in one pass, with the rate, ``constants``, decay, l1, scale, keeps_step.
        constants: the SolverParameter's fields that it takes.
        second: the field that is a second decay rate; empty: there is none.
    """

    n_histories: int = 1
    learns_frozen: ClassVar[bool] = True
    kernel: Callable[..., None]
    constants: ClassVar[tuple[str, ...]] = ("momentum",)
    second: ClassVar[str] = ""

    def __init__(self, param: Any) -> None:
        self.param, self.name = param, param.type or "SGD"

    def portion(self) -> int | None:
        """Images in a portion, for a rule that makes passes over batches in portions (0: the net's batch size).

        None for a rule that updates after each of the net's batches."""
        return None

    def numbers(self, hyper: Hyper) -> dict[str, float]:
        """The rule's numbers for a device's kernels: rate, momentum, second (a second decay rate) and delta."""
        second = getattr(self.param, self.second) if self.second else 0.0
        return {"rate": self.rate(hyper), "momentum": self.param.momentum, "second": second, "delta": self.param.delta}

    def rate(self, hyper: Hyper) -> float:
        """The rate by which an update multiplies."""
        return hyper.rate

    def update(self, w: np.ndarray, g: np.ndarray, histories: list[np.ndarray], hyper: Hyper) -> None:
        """Update w and the histories in place, elementwise.

        Args:
            w: parameters, (n,), floating.
            g: their summed gradients, (n,), of the same dtype.
            histories: ``n_histories`` arrays like w.
            hyper: the numbers of this update, ``rate`` and ``decay`` multiplied already by the parameter's lr_mult and
                decay_mult.
        """
        one = w.dtype.type
        in_parts(self.kernel, (w, g, *histories[:self.n_histories]), one(self.rate(hyper)),
                 *(one(getattr(self.param, name)) for name in self.constants), one(hyper.decay), hyper.l1,
                 one(hyper.scale), hyper.keeps_step)


def refuse_momentum(param: Any, name: str) -> None:
    """Raise UserError if the solver gives a momentum to a rule that has none."""
    if param.momentum:
        raise UserError(f"momentum cannot be used with {name}, got {param.momentum:g}")


@compiled(inline="always")
def regularized(w: float, g: float, decay: float, l1: bool, scale: float) -> float:
    """One element's gradient, scaled and with the decay's part: scale · g + decay · w, or with L1 scale · g +
    decay · sign(w)."""
    return scale * g + decay * (np.sign(w) if l1 else w)


class UpdatePlan:
    """Applies a rule to the same segments at every update: one compiled call per segment. ``segments``: the intervals
    to update, each with its lr_mult and decay_mult."""

    def __init__(self, rule: UpdateRule, segments: Sequence[Segment]) -> None:
        self._rule, self._segments = rule, segments

    def run(self, w: np.ndarray, g: np.ndarray, histories: Sequence[np.ndarray], hyper: Hyper,
            factor: float = 1.0) -> None:
        """Update the segments of w and of the histories in place.

        Args:
            w, g, histories: parameters, summed gradients, histories: flat arrays of one length and floating dtype.
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
