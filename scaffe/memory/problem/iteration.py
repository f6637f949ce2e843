"""What a memory plan is made from: the arrays of one iteration, when they are used, and how long each step takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True)
class Recompute:
    """How an array can be computed once more, in backward.

    Attributes:
        layers: the layers whose forward writes it, in order; those fused to one of them run with it.
        inputs: the arrays, by number, that they read; others that they read are always in memory.
        seconds: that it takes beside what these layers take.
    """

    layers: tuple[int, ...]
    inputs: tuple[int, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class Tensor:
    """An array that is needed for part of an iteration only.

    Attributes:
        name: a blob's name, for people.
        n_bytes: its length in bytes.
        forward, backward: the steps that use it, ascending. What forward leaves is needed in backward's steps; an array
            without steps in forward is a gradient, one without steps in backward is not needed there.
        recompute: how it can be computed once more; None: it cannot.
        is_persistent: whether its contents last from one iteration to the next, as parameters and histories do. Then its last
            step in backward, or its step of the update, changes it; until then what the slow memory has stays true.
            Without steps in backward nothing changes it.
        changes_in_forward: whether its first step in forward may change what lasts, too.
        late: of what lasts, steps behind backward's, before which it may leave once more; the last of them changes it.
        is_transient: of a gradient, whether nothing in it lasts from one of its steps to the next.
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
        """Its steps, in groups between which it may leave memory."""
        return [steps for steps in (self.forward, self.backward, self.late) if steps]

    @property
    def begins(self) -> tuple[int, ...]:
        """The steps that write it anew, if it does not last."""
        return self.backward if self.is_transient else (self.forward or self.backward)[:1]

    @property
    def may_be_offloaded(self) -> bool:
        """Whether its contents last over steps that do not use it, between forward and backward."""
        return bool(self.forward and self.backward and self.backward[0] - self.forward[-1] > 1)

    @property
    def changes(self) -> bool:
        """Whether the slow memory has to get it again in every iteration, if it is there between them."""
        return self.is_persistent and bool(self.backward)

    def is_changed_by(self, step: int) -> bool:
        """Whether the slow memory does not have its contents after a step, the last to use it for now."""
        return self.changes_in_forward or (self.changes and step >= self.uses[-1][-1])

    @property
    def n_visits(self) -> int:
        """How often it comes into memory in an iteration if it leaves whenever it lies idle."""
        return 1 + self.may_be_offloaded + bool(self.late)

    @property
    def n_offloads(self) -> int:
        """How often it is written then."""
        return self.n_visits if self.changes_in_forward else 1

    def is_offloaded_before(self, step: int) -> bool:
        """Whether it lies idle right before its first step in backward, if that is this one."""
        return step - self.forward[-1] > 1 if self.forward else self.is_persistent


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second of the slow memory.

    Attributes:
        out, back: written to it, and read from it.
        at_once: whether it gives both at once.
    """

    out: float
    back: float
    at_once: bool = False


@dataclass(frozen=True)
class Iteration:
    """One pass forward and one backward over n layers, and what is updated after them.

    Attributes:
        tensors: the arrays.
        seconds: of each step, as ``Steps`` numbers them; updates of all layers may follow.
        n_updates: the number of updates that follow. What lasts and is used in them alone comes no earlier, since
            passes may be repeated before them.
        joined: steps of forward that run in one pass with the step before: what is done before them is done before all.
    """

    tensors: tuple[Tensor, ...]
    seconds: tuple[float, ...]
    n_updates: int = 0
    joined: frozenset[int] = frozenset()

    def recompute_seconds(self, tensor: int) -> float:
        """How long it takes to compute an array once more, its inputs being there."""
        recompute = self.tensors[tensor].recompute
        return recompute.seconds + sum(self.seconds[layer] for layer in recompute.layers) if recompute else 0.0

    def starts(self) -> list[float]:
        """When each step starts where nothing waits, and when the last one ends."""
        return [0.0, *accumulate(self.seconds)]

    @cached_property
    def used_in(self) -> Sequence[Sequence[int]]:
        """For each step the arrays, by number, that it reads or writes."""
        found: list[list[int]] = [[] for _ in self.seconds]
        for number, tensor in enumerate(self.tensors):
            for step in sorted({step for used in tensor.uses for step in used}):
                found[step].append(number)
        return found

    def with_seconds(self, seconds: tuple[float, ...]) -> Iteration:
        """The same with other times, such as measured ones."""
        return replace(self, seconds=seconds)
