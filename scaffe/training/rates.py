"""The learning rate of each iteration: what the schedule says, or, for the policy ``plateau``, the losses too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from scaffe.errors import UserError
from scaffe.files import SolverState
from scaffe.log import info
from scaffe.training.lr_policies import current_step, is_warming, learning_rate


class Rates(Protocol):
    """The rates of one run, whose SolverParameter a Solver has."""

    def before(self, iteration: int) -> float:
        """The rate that is known before the passes of an iteration. Raises UserError as ``learning_rate``."""

    def after(self, mean_loss: Callable[[], float], iteration: int, rate: float) -> float:
        """The rate of the iteration's update.

        Args:
            mean_loss: gives the iteration's loss, the mean over all ranks; called by all of them or by none.
            iteration: iterations done before this one.
            rate: what ``before`` gave.
        """

    def kept(self, iteration: int) -> dict[str, Any]:
        """What a snapshot after so many iterations saves: names and values of SolverState fields."""

    def restore(self, state: SolverState) -> None:
        """Take back what ``kept`` saved."""


class Scheduled:
    """Rates that the iteration alone decides."""

    def __init__(self, p: Any) -> None:
        self._p = p

    def before(self, iteration: int) -> float:
        """See Rates."""
        return learning_rate(self._p, iteration)

    def after(self, mean_loss: Callable[[], float], iteration: int, rate: float) -> float:
        """See Rates: what it was before."""
        return rate

    def kept(self, iteration: int) -> dict[str, Any]:
        """See Rates."""
        return {"current_step": current_step(self._p, iteration)}

    def restore(self, state: SolverState) -> None:
        """See Rates: there is nothing to take back."""


class Plateau:
    """base_lr · gamma^step, where a step comes when the loss has not fallen for ``plateau_winsize[step]`` iterations.

    The loss is the mean of the last ``average_loss`` ones. Its lowest value and each step start the count anew. After
    the last of ``plateau_winsize`` the rate stays. On a GPU every iteration waits for its loss. Source: SSD's fork and
    intel/caffe, sgd_solver.cpp.

    Raises:
        UserError: no ``plateau_winsize``, or one below 1.
    """

    def __init__(self, p: Any) -> None:
        if not p.plateau_winsize or min(p.plateau_winsize) < 1:
            raise UserError(f"lr_policy 'plateau' needs plateau_winsize, all above 0; got {list(p.plateau_winsize)}")
        self._p = p
        self._step, self._last_event = 0, 0
        self._minimum = float(np.finfo(np.float32).max)
        self._losses: deque[float] = deque(maxlen=max(p.average_loss, 1))

    def before(self, iteration: int) -> float:
        """See Rates."""
        return learning_rate(self._p, iteration, lambda p, _: float(p.base_lr * p.gamma**self._step))

    def after(self, mean_loss: Callable[[], float], iteration: int, rate: float) -> float:
        """See Rates: the rate falls in the iteration whose loss is one too many that is no lower."""
        self._losses.append(mean_loss())
        if is_warming(self._p, iteration):
            return rate
        smoothed = float(np.float32(sum(self._losses) / len(self._losses)))
        if smoothed < self._minimum:
            self._minimum, self._last_event = smoothed, iteration
        sizes = self._p.plateau_winsize
        if self._step < len(sizes) and iteration >= self._last_event + sizes[self._step]:
            self._step, self._last_event = self._step + 1, iteration
            info(f"Plateau Status: Iteration {iteration}, step = {self._step}")
        return self.before(iteration)

    def kept(self, iteration: int) -> dict[str, Any]:
        """See Rates."""
        return {"current_step": self._step, "minimum_loss": self._minimum, "iter_last_event": self._last_event,
                "losses": list(self._losses)}

    def restore(self, state: SolverState) -> None:
        """See Rates. States of SSD's fork hold no losses; ``average_loss`` then begins anew, as there."""
        self._step, self._last_event = state.current_step, state.iter_last_event or 0
        if state.minimum_loss is not None:
            self._minimum = state.minimum_loss
        self._losses.extend(state.losses)


KINDS: dict[str, Callable[[Any], Rates]] = {"plateau": Plateau}


def rates_of(p: Any) -> Rates:
    """The rates that a SolverParameter asks for.

    Raises:
        UserError: the policy is unknown or lacks a number, or has no first rate.
    """
    rates = KINDS.get(p.lr_policy, Scheduled)(p)
    rates.before(0)  # an unknown policy shows before hours of training
    return rates
