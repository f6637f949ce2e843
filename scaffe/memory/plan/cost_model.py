"""The cost model: how long an iteration takes under a plan. Moves queue beside the steps, in one queue or one each
way."""

from __future__ import annotations

from dataclasses import dataclass

from scaffe.memory.plan.plan import Action, Do, Plan
from scaffe.memory.problem.iteration import Bandwidth, Iteration


@dataclass
class Prediction:
    """Seconds and bytes of one iteration.

    Attributes:
        compute: seconds of the steps themselves.
        recompute: seconds of recomputing tensors.
        waited: seconds in which a step waits for a move.
        offloaded, fetched: bytes moved out and back.
    """

    compute: float
    recompute: float = 0.0
    waited: float = 0.0
    offloaded: int = 0
    fetched: int = 0

    @property
    def seconds(self) -> float:
        """Seconds of the whole iteration."""
        return self.compute + self.recompute + self.waited

    @property
    def slowdown(self) -> float:
        """The iteration's time as a multiple of that without a limit."""
        return self.seconds / self.compute if self.compute else 1.0


def predict(iteration: Iteration, plan: Plan, bandwidth: Bandwidth) -> Prediction:
    """The times of one iteration. Moves run one after another, in the order in which they begin; offloads and fetches
    run at the same time if the backing store allows both."""
    found, queue = Prediction(sum(iteration.seconds)), _Queue(iteration, bandwidth)
    now = 0.0
    for step, seconds in enumerate(iteration.seconds):
        for action in plan.before[step]:
            if action.do is Do.RECOMPUTE:
                found.recompute += iteration.recompute_seconds(action.tensor)
                now += iteration.recompute_seconds(action.tensor)
            elif action.do is Do.FETCH:
                queue.begin(action, now, found)
            else:  # OFFLOADED, FETCHED
                now += queue.wait(action, now, found)
        now += seconds
        for action in plan.after[step]:
            if action.do is Do.OFFLOAD:
                queue.begin(action, now, found)
            elif action.do is Do.OFFLOADED:
                now += queue.wait(action, now, found)
    return found


class _Queue:
    """The moves, one after another, or so each way."""

    def __init__(self, iteration: Iteration, bandwidth: Bandwidth) -> None:
        self._iteration, self._bandwidth = iteration, bandwidth
        self._done: dict[int, float] = {}
        self._free_at = {False: 0.0, True: 0.0}  # True: moves out, where they have a queue of their own

    def begin(self, action: Action, now: float, found: Prediction) -> None:
        """Put a move into the queue."""
        n_bytes = self._iteration.tensors[action.tensor].n_bytes
        offloads = action.do is Do.OFFLOAD
        rate = self._bandwidth.out if offloads else self._bandwidth.back
        queue = offloads and self._bandwidth.at_once
        self._free_at[queue] = self._done[action.tensor] = max(self._free_at[queue], now) + n_bytes / rate
        if offloads:
            found.offloaded += n_bytes
        else:
            found.fetched += n_bytes

    def wait(self, action: Action, now: float, found: Prediction) -> float:
        """Wait for a tensor's last move. Returns the seconds that this takes."""
        waited = max(0.0, self._done[action.tensor] - now)
        found.waited += waited
        return waited
