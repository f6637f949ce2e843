"""A net within limited memory: its plan is made, carried out, and made again with measured times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from scaffe.errors import ExpectedError, UserError
from scaffe.memory.backing.store import BackingStore
from scaffe.memory.options import shown
from scaffe.memory.plan.layout import Layout
from scaffe.memory.plan.placements import PLACEMENTS
from scaffe.memory.plan.plan import Action, Choice, Do, MemoryTooSmallError, Plan
from scaffe.memory.plan.schedule import predict
from scaffe.memory.problem.iteration import Bandwidth, Iteration
from scaffe.memory.problem.tensors import ActivationTensor, StateTensor, forward_group
from scaffe.memory.run.executor import Executor, Timed
from scaffe.nets.blob_memory import backward_block
from scaffe.nets.cuda_graphs import Recorded
from scaffe.nets.net import Net
from scaffe.nets.steps import Steps

NO_DISK = Bandwidth(1.0, 1.0)  # where nothing moves


@dataclass(frozen=True)
class Limit:
    """A limit of memory that was asked for.

    Attributes:
        text: the limit as it was given, "2GB".
        n_bytes: that everything may take together.
        unmovable: bytes of it that no plan moves.
    """

    text: str
    n_bytes: int
    unmovable: int
    placement: str


class LimitedNet:
    """Has a net follow a plan. Raises UserError if the limit is too low, or the backing store has no room."""

    def __init__(self, net: Net, activations: Sequence[ActivationTensor], state: Sequence[StateTensor],
                 iteration: Iteration, limit: Limit, store: BackingStore,
                 timed: Timed = lambda name, label: nullcontext()) -> None:
        self.iteration, self.limit, self._store, self._n_blobs = iteration, limit, store, len(activations)
        self.least = limit.unmovable + store.least_bytes(iteration)
        if limit.n_bytes < self.least:
            raise UserError(f"-memory {limit.text}: {limit.n_bytes:,} bytes are too few; this net trains in "
                            f"{self.least:,} at least, of which {limit.unmovable:,} cannot move")
        self._bandwidth = store.bandwidth() if limit.placement != "recompute" else NO_DISK
        try:
            first = self._make_plan(iteration)
        except MemoryTooSmallError as error:
            raise UserError(f"-memory {limit.text} with -placement {limit.placement}: {error}") from error
        self.executor = Executor(net, activations, state, store, timed)
        self.mover = self.executor.mover
        self._follow(*first)

    def _make_plan(self, iteration: Iteration) -> tuple[Plan, Layout]:
        n_bytes = self.limit.n_bytes - self.limit.unmovable
        return self._store.fitted(iteration, PLACEMENTS[self.limit.placement], n_bytes, self._bandwidth, self._n_blobs)

    def _follow(self, plan: Plan, layout: Layout) -> None:
        self.mover.wait_all()
        self.mover.place([number for number in plan.tensors_of(Do.OFFLOAD) if number < self._n_blobs])
        self.executor.follow(plan, layout)
        self.plan = plan

    def replan(self) -> None:
        """Make the plan again with the times that steps and moves took. If there is none, the first one stays."""
        seconds = self.executor.clock.seconds
        self.iteration = replace(self.iteration, seconds=tuple(
            seconds.get(step, 0.0) for step in range(len(self.iteration.seconds))))
        self._bandwidth = self.mover.bandwidth() or self._bandwidth
        with suppress(ExpectedError):  # no such plan, or no room on the disk for it
            self._follow(*self._make_plan(self.iteration))

    def text(self) -> str:
        counts = ", ".join(f"{choice.value} {self.plan.choices.count(choice)}" for choice in (
            Choice.KEEP, Choice.MOVE, Choice.RECOMPUTE))
        found = predict(self.iteration, self.plan, self._bandwidth)
        return (f"{counts} arrays; {shown(found.offloaded)} out and back an iteration, predicted time "
                f"{found.slowdown:.2f}x")

    def spent(self) -> str:
        moved = f"{shown(self.mover.offloaded)} written, {shown(self.mover.fetched)} read back"
        if not self.mover.holds_host:
            return moved
        return (f"{moved}, waited {self.executor.waited_seconds:.3g} s, "
                f"computed again for {self.executor.recomputed_seconds:.3g} s")


BETWEEN = (Do.OFFLOAD, Do.OFFLOADED, Do.FETCH, Do.FETCHED)  # the others are a device's own work, or none


class Cuts(NamedTuple):
    """Indices of layers at which recordings of passes begin.

    Attributes:
        forward, backward: for each way; a recording runs backward from the layer before the next cut down to its own.
    """

    forward: frozenset[int]
    backward: frozenset[int]


def cuts(plan: Plan, forward: Sequence[range], backward: Sequence[range], updates: Collection[int] = (),
         steps: Steps | None = None) -> Cuts:
    """Where recordings of passes (CUDA graphs) are cut, so that a plan's moves lie between them. A recording begins
    with what stands before its first step that moves something, which is its first step of all, or one of the first
    pass. It ends with what stands behind and between all others: these belong to its last pass, which has run by then.

    Args:
        forward, backward: for each layer, those that run in one pass with it.
    """
    steps = steps or Steps(len(forward))
    ahead, back = set[int](), set[int]()
    for index, (group, block) in enumerate(zip(forward, backward, strict=True)):
        own = [step for step in steps.backward(index) if step < len(plan.before)]
        if _moves(plan.before[index]):
            ahead.add(group.start)
        if _moves(plan.after[index]):
            ahead.add(group.stop)
        if any(_moves(plan.before[step]) for step in own):
            back.add(block.stop if index == block[-1] else block.start)
        if any(step in updates or _moves(plan.after[step]) for step in own):
            back.add(block.start)
    return Cuts(frozenset(ahead), frozenset(back))


def _moves(actions: Sequence[Action]) -> bool:
    return any(action.do in BETWEEN for action in actions)


def cut_recordings(net: Net, plan: Plan, updates: Collection[int], passes: Any) -> None:
    """Have recordings of a net's passes made anew, so that they begin and end where a plan moves something, or layers
    are updated. ``passes``: what runs the net's passes: recordings, or the net itself, for which nothing is done."""
    if isinstance(passes, Recorded):
        layers = range(len(net.nodes))
        found = cuts(plan, [forward_group(net, i) for i in layers], [backward_block(net, i) for i in layers], updates,
                     net.steps)
        passes.cut(found.forward, found.backward)
