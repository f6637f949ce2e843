"""A plan: what one rank does in a collective, as an ordered list of sends and receives on one flat buffer.

The executor, the simulator, the counter and the cost model share these semantics:

* Steps run in the order of the plan. Messages from one rank to another are matched in the order sent, and both sides
  of a message have the same length.
* `Send` starts a message and does not wait for it. Its interval must keep its values until the message has left.
* `Recv` first waits until all of this rank's sends that overlap its interval have left, then receives into it. It may
  be posted early if no unfinished earlier step reads or writes its interval.
* `RecvReduce` receives into scratch (any number may be posted early), waits until all of this rank's sends that
  overlap its interval have left, then sets the interval to op(own, received), operands in this order.
* The collective is complete on a rank when all its steps have run and all its sends have left.

Intervals are counted in elements, are never empty and lie in [0, n_elems); a rank never sends to itself. A collective
of no elements, or on one rank, has no steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from scaffe.collectives.errors import CommError
from scaffe.collectives.messages import message


@message
class _Transfer:
    """A message of elements [start, stop) between this rank and rank `peer`."""

    peer: int
    start: int
    stop: int


@message
class Send(_Transfer):
    """Send elements [start, stop) to rank `peer`."""


@message
class Recv(_Transfer):
    """Overwrite elements [start, stop) with the next message from rank `peer`."""


@message
class RecvReduce(_Transfer):
    """Replace elements [start, stop) by op(own, received) with the next message from rank `peer`."""


Step = Send | Recv | RecvReduce


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of rank `rank` of `n_ranks` on a flat buffer of `n_elems` elements."""

    rank: int
    n_ranks: int
    n_elems: int
    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def scratch_elems(self) -> int:
        """Elements that one scratch slot needs: the length of the longest RecvReduce; 0 if there is none."""
        return max((step.stop - step.start for step in self.steps if isinstance(step, RecvReduce)), default=0)


def chunks(start: int, stop: int, chunk_elems: int) -> Iterator[tuple[int, int]]:
    """Cut [start, stop) into intervals of `chunk_elems` elements, of which the last may be shorter. Raises CommError:
    `chunk_elems` is below 1."""
    if chunk_elems < 1:
        raise CommError(f"a chunk needs at least 1 element, not {chunk_elems}")
    for first in range(start, stop, chunk_elems):
        yield first, min(first + chunk_elems, stop)


class Kind(Enum):
    """What an instruction does with the message of its step."""

    POST = auto()
    """Start to receive."""
    AWAIT = auto()
    """Wait until received."""
    COMBINE = auto()
    """Reduce what was received into the interval."""
    SEND = auto()
    """Start to send."""
    SENT = auto()
    """Wait until the message has left."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """`kind` applied to step number `step` of the plan."""

    kind: Kind
    step: int


class _Intervals:
    """The buffer cut at the ends of all steps' intervals, and the steps that have touched each cell so far."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        cuts = sorted({step.start for step in steps} | {step.stop for step in steps})
        self._index = {cut: index for index, cut in enumerate(cuts)}
        self.touched = [-1] * len(cuts)  # by cell, the latest noted step there
        self._sends: list[list[int]] = [[] for _ in cuts]

    def cells(self, step: Step) -> range:
        return range(self._index[step.start], self._index[step.stop])

    def sends(self, step: Step) -> list[int]:
        """The noted sends that read the interval of `step`, earliest first."""
        return sorted({send for cell in self.cells(step) for send in self._sends[cell]})

    def note(self, number: int, step: Step) -> None:
        """Note that `step` touches its interval; a receive clears the sends noted there, which it has waited for."""
        for cell in self.cells(step):
            self.touched[cell] = number
            if isinstance(step, Send):
                self._sends[cell].append(number)
            else:
                self._sends[cell] = []


def _constraints(steps: tuple[Step, ...], ahead: int) -> tuple[dict[int, int], dict[int, list[int]]]:
    """For every receive, the earliest step before which it may be posted, and the sends that must have left before
    it is posted (Recv) or before its sum is computed (RecvReduce)."""
    intervals, earliest, blockers = _Intervals(steps), {}, {}
    reduces: list[int] = []
    for number, step in enumerate(steps):
        if isinstance(step, RecvReduce):
            earliest[number] = reduces[-ahead] + 1 if len(reduces) >= ahead else 0
            reduces.append(number)
        elif isinstance(step, Recv):
            earliest[number] = max(intervals.touched[cell] for cell in intervals.cells(step)) + 1
        if not isinstance(step, Send):
            blockers[number] = intervals.sends(step)
            if isinstance(step, Recv) and blockers[number]:
                earliest[number] = max(earliest[number], min(number, blockers[number][-1] + 1 + ahead))
        intervals.note(number, step)
    return earliest, blockers


def compile_plan(plan: Plan, ahead: int) -> list[Instruction]:
    """Compile `plan`. ``ahead``: the most receives, at least 1, that may be posted and not yet completed. Returns the
    instructions in order. The n-th RecvReduce may use scratch slot n modulo `ahead`."""
    steps = plan.steps
    earliest, blockers = _constraints(steps, ahead)
    receives, posted, taken = list(earliest), 0, 0
    unsent: dict[int, None] = {}
    program: list[Instruction] = []

    def await_sends(number: int) -> None:
        for send in blockers[number]:
            if unsent.pop(send, 0) is None:
                program.append(Instruction(Kind.SENT, send))

    for number, step in enumerate(steps):
        while posted < len(receives) and posted - taken < ahead and earliest[receives[posted]] <= number:
            if isinstance(steps[receives[posted]], Recv):
                await_sends(receives[posted])
            program.append(Instruction(Kind.POST, receives[posted]))
            posted += 1
        if isinstance(step, Send):
            program.append(Instruction(Kind.SEND, number))
            unsent[number] = None
            continue
        program.append(Instruction(Kind.AWAIT, number))
        taken += 1
        if isinstance(step, RecvReduce):
            await_sends(number)
            program.append(Instruction(Kind.COMBINE, number))
    return program + [Instruction(Kind.SENT, send) for send in unsent]


def bounds(part: int, n_parts: int, n_elems: int) -> tuple[int, int]:
    """Part `part` as [start, stop): the parts are in order, cover [0, n_elems) and differ by at most one element."""
    return part * n_elems // n_parts, (part + 1) * n_elems // n_parts


def part(rank: int, n_ranks: int, n_elems: int) -> slice:
    """The slice of a flat buffer of `n_elems` that rank `rank` of `n_ranks` owns."""
    return slice(*bounds(rank, n_ranks, n_elems))


def all_bounds(n_parts: int, n_elems: int) -> list[int]:
    """n_parts + 1 ascending offsets: part r is [offsets[r], offsets[r + 1])."""
    return [bounds(part, n_parts, n_elems)[0] for part in range(n_parts)] + [n_elems]
