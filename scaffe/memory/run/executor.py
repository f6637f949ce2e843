"""Carries out a memory plan while a net runs: offloads, fetches, drops and recomputes before and after each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from scaffe.errors import UserError
from scaffe.memory.backing.store import BackingStore
from scaffe.memory.plan.layout import Layout
from scaffe.memory.plan.plan import Action, Choice, Do, Plan
from scaffe.memory.problem.activations import share_passed_diffs
from scaffe.memory.problem.tensors import ActivationTensor, StateTensor, sharers, tensors_of
from scaffe.nets.net import Net, Tier

Timed = Callable[[str, str], AbstractContextManager[Any]]
"""Gives a with-block whose time counts under a name, with a label."""


class Executor(Tier):
    """A net's tier that keeps its tensors in memory only as long as the plan says.

    Args:
        net: a built net. Its planned blobs get their memory here, and this becomes one of the net's ``tiers``.
        state: tensors of parameters, gradients and histories; their numbers follow.

    Attributes:
        updates: by step of backward, what updates parameters behind it, in steps of its own.
        enter: called before each pass and ``fetch``: has other executors of the same memory leave it.
        clock: measures each step, without what the plan adds.
        waited_seconds, recomputed_seconds: seconds so far in which steps waited for moves, and of recomputing.
    """

    def __init__(self, net: Net, activations: Sequence[ActivationTensor], state: Sequence[StateTensor],
                 store: BackingStore, timed: Timed) -> None:
        self._net, self._activations, self._state, self._timed = net, activations, state, timed
        self.tensors = tensors_of(net, activations, state)
        names = {number: tensor.name for number, tensor in enumerate(self.tensors) if tensor.is_persistent}
        self.memory, self.mover, self._persistent, self.clock = store.open(
            [each.tensor.n_bytes for each in activations], state, names)
        self.updates: dict[int, list[Callable[[], None]]] = {}
        self.enter: Callable[[], None] = lambda: None
        self.plan: Plan | None = None
        self.n_passes, self.waited_seconds, self.recomputed_seconds = 0, 0.0, 0.0
        self._new: dict[int, list[int]] = {}  # by step, the arrays that it writes anew
        for number, tensor in enumerate(self.tensors):
            for step in tensor.begins if not tensor.is_persistent else ():
                self._new.setdefault(step, []).append(number)
        self._expected = [each.blob.n_elems for each in activations]
        self._sharers = sharers(net, activations)
        net.tiers.append(self)

    def _bind(self) -> None:
        for number in range(len(self._activations)):
            self._bind_blobs(number)
        for state, memory in zip(self._state, self.memory.arrays[len(self._activations):], strict=True):
            if not state.tensor.is_persistent and not state.is_refreshed:  # those are told when an iteration begins
                state.bind(memory)
        share_passed_diffs(self._net)
        for node in self._net.nodes:
            node.seen_shapes = None  # layers that share memory do so anew
        self._net.reshape()

    def _bind_blobs(self, number: int) -> None:
        each = self._activations[number]
        n_bytes = self._expected[number] * each.blob.dtype.itemsize
        flat = self.memory.arrays[number][:n_bytes].view(each.blob.dtype)
        for blob in self._sharers[number]:
            if each.is_diff:
                blob.bind_diff(flat)
            else:
                blob.bind_data(flat)

    def follow(self, plan: Plan, layout: Layout) -> None:
        self._let_go()
        self._persistent.show_all()
        self.plan, self.memory.most_bytes = plan, layout.others_bytes
        self.memory.arrange(layout.offsets, layout.stays)
        self._bind()
        self._persistent.move([number for number, choice in enumerate(plan.choices) if choice is Choice.MOVE])

    def before(self, step: int) -> None:
        if step == 0:
            self._begin()
        self.place(step)
        for action in self.plan.before[step] if self.plan else ():
            if action.do is not Do.RECOMPUTE:
                self._do(action)
        for number in self._new.get(step, ()):
            self.memory.take(number)

    def place(self, step: int) -> None:
        for number in self.memory.place(step):
            self._bind_blobs(number)

    def recompute(self, step: int) -> None:
        for action in self.plan.before[step] if self.plan else ():
            if action.do is Do.RECOMPUTE:
                self._recompute(action.tensor)
        self.clock.begin(step)

    def ended(self, step: int) -> None:
        self.clock.end(step)

    def after(self, step: int) -> None:
        self.ended(step)
        for action in self.plan.after[step] if self.plan else ():
            self._do(action)
        for update in self.updates.get(step, ()):
            update()

    def close(self) -> None:
        self.mover.wait_all()
        self.mover.close()

    def _begin(self) -> None:
        """Begin a new pass, whatever became of the last one. A blob that has grown has other memory by now."""
        self.n_passes += 1
        self.enter()
        self._let_go()
        if self.plan is not None:
            self._persistent.begin(self.mover)
        for each, n_elems in zip(self._activations, self._expected, strict=True):
            if each.blob.n_elems > n_elems:
                raise UserError(f"-memory: blob {each.tensor.name!r} had {n_elems} elements when training began, and "
                                f"has {each.blob.n_elems} now; a net whose blobs grow cannot train in limited memory")

    def _let_go(self) -> None:
        if self.plan is None:
            return
        self.mover.wait_all()
        for number, tensor in enumerate(self.tensors):
            if not tensor.is_persistent:
                self.memory.drop(number)

    def fetch(self, numbers: Collection[int]) -> None:
        """Have persistent tensors where they can be read and written whole until the next pass begins. Between passes
        only."""
        self.enter()
        self._show(numbers)

    def release(self, numbers: Collection[int]) -> None:
        """Have those of these tensors that ``fetch`` shows take no memory until they are read again."""
        self._persistent.release(numbers)

    def offload(self) -> None:
        """Let others have the memory until the next pass begins: persistent tensors are in the backing store. Between
        passes only."""
        self._show(range(len(self.tensors)))

    def _show(self, numbers: Collection[int]) -> None:
        self._let_go()
        self.memory.give_back()  # nobody needs what passes have left
        self._persistent.show(numbers)

    def _do(self, action: Action) -> None:
        number, name = action.tensor, self.tensors[action.tensor].name
        if action.do is Do.DROP:
            self.memory.drop(number)
        elif action.do is Do.OFFLOAD:
            self.mover.offload(number, name)
        elif action.do is Do.FETCH:
            self.memory.take(number)
            self.mover.fetch(number, name)
        else:
            started = time.perf_counter()
            with self._timed("memory", f"wait {name}"):
                self.mover.wait(number)
            self.waited_seconds += time.perf_counter() - started
            if action.do is Do.OFFLOADED:
                self.memory.drop(number)

    def _recompute(self, number: int) -> None:
        self.memory.take(number)
        started = time.perf_counter()
        tensor = self.tensors[number]
        with self._timed("memory", f"again {tensor.name}"):
            for layer in tensor.recompute.layers if tensor.recompute else ():
                self._net.forward_again(layer)
            if number >= len(self._activations):
                self._state[number - len(self._activations)].refresh()
        self.recomputed_seconds += time.perf_counter() - started


def share_arena(executors: Sequence[Executor]) -> None:
    """Let executors share one memory: before one uses it, the one that used it last offloads its tensors. None may
    have run yet."""
    last: list[Executor] = []

    def enter(executor: Executor) -> None:
        if last and last[0] is not executor:
            last[0].offload()
        last[:] = [executor]

    for executor in executors:
        executor.enter = partial(enter, executor)
