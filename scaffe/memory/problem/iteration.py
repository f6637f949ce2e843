"""What a memory plan is made from: the tensors of one iteration, the steps that use them, and how long each step
takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Recompute:
    """How a tensor can be computed once more, in backward (recomputation: Chen et al., 2016).

    Attributes:
        layers: the layers whose forward writes it, in order; layers that are fused to one of them run with it.
        inputs: the tensors, by number, that these layers read. Others that they read are always in memory.
        seconds: that it takes in addition to these layers' forward.
    """

    layers: tuple[int, ...]
    inputs: tuple[int, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class Tensor:
    """An array that is needed for part of an iteration only.

    Attributes:
        name: a blob's or layer's name, for people.
        forward, backward: the steps that use it, ascending. What forward writes is needed in the steps of backward; a
            tensor without steps in forward is a gradient, one without steps in backward is not needed there.
        recompute: how it can be computed once more; None if it cannot.
        is_persistent: whether its contents last from one iteration to the next, as those of parameters and histories
            do. Its last step in backward, or its step of the update, then changes it; until that step the copy in the
            backing store is valid. Without steps in backward nothing changes it.
        changes_in_forward: whether its first step in forward may change it too, if it is persistent.
        late: steps of an update after those of backward, before which a persistent tensor may be offloaded once more;
            the last of them changes it.
        is_transient: of a gradient, whether each of its steps writes it anew.
    """

    name: str
    n_bytes: int
    forward: tuple[int, ...] = ()
    backward: tuple[int, ...] = ()
    recompute: Recompute | None = None
    is_persistent: bool = False
    changes_in_forward: bool = False
    late: tuple[int, ...] = ()
    is_transient: bool = False

    @cached_property
    def uses(self) -> list[tuple[int, ...]]:
        """Its steps, in groups between which it may be offloaded."""
        return [steps for steps in (self.forward, self.backward, self.late) if steps]

    @property
    def begins(self) -> tuple[int, ...]:
        return self.backward if self.is_transient else (self.forward or self.backward)[:1]

    @property
    def may_be_offloaded(self) -> bool:
        """Whether its contents are needed later than in the next step, from forward to backward."""
        return bool(self.forward and self.backward and self.backward[0] - self.forward[-1] > 1)

    @property
    def changes(self) -> bool:
        """Whether each iteration changes what the backing store has of it, if it is persistent."""
        return self.is_persistent and bool(self.backward)

    def is_changed_by(self, step: int) -> bool:
        """Whether the copy in the backing store is no longer valid after a step, the last to use the tensor for now."""
        return self.changes_in_forward or (self.changes and step >= self.uses[-1][-1])

    @property
    def n_visits(self) -> int:
        """How often it comes into memory in an iteration if it is offloaded whenever it lies idle."""
        return 1 + self.may_be_offloaded + bool(self.late)

    @property
    def n_offloads(self) -> int:
        """How often it is written to the backing store in that case."""
        return self.n_visits if self.changes_in_forward else 1

    def is_offloaded_before(self, step: int) -> bool:
        """Whether it lies idle right before ``step``, its first step in backward."""
        return step - self.forward[-1] > 1 if self.forward else self.is_persistent


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second of a backing store.

    Attributes:
        out, back: written to it, and read from it.
        at_once: whether it reaches both at the same time.
    """

    out: float
    back: float
    at_once: bool = False


@dataclass(frozen=True)
class Iteration:
    """One pass forward and one backward over n layers, and the updates after them.

    Attributes:
        seconds: of each step, as ``Steps`` numbers them; steps of updates of all layers may follow.
        n_updates: how many of those follow. A persistent tensor that only they use is not fetched before them, since
            passes may be repeated before the update.
        joined: steps of forward that run in one pass with the step before. What is done before them is done before that
            pass.
    """

    tensors: tuple[Tensor, ...]
    seconds: tuple[float, ...]
    n_updates: int = 0
    joined: frozenset[int] = frozenset()

    def recompute_seconds(self, tensor: int) -> float:
        """How long it takes to compute a tensor once more when its inputs are in memory."""
        recompute = self.tensors[tensor].recompute
        return recompute.seconds + sum(self.seconds[layer] for layer in recompute.layers) if recompute else 0.0

    def starts(self) -> list[float]:
        """When each step starts if nothing waits, in seconds, and when the last one ends."""
        return [0.0, *accumulate(self.seconds)]

    @cached_property
    def used_in(self) -> Sequence[Sequence[int]]:
        """For each step the tensors, by number, that it reads or writes."""
        found: list[list[int]] = [[] for _ in self.seconds]
        for number, tensor in enumerate(self.tensors):
            for step in sorted({step for used in tensor.uses for step in used}):
                found[step].append(number)
        return found
