"""Compiles a plan to a program: the fixed order in which one rank posts, awaits and combines its messages. Pure.

Receives are posted in the order of the plan, up to `ahead` of them before their turn, as soon as no unfinished step
touches their interval. A send is awaited only before its interval is overwritten, and at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from scaffe.collectives.planning.plan import Plan, Recv, RecvReduce, Send, Step


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
    """The buffer cut at the ends of all steps' intervals, and the steps that have touched each piece so far."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        cuts = sorted({step.start for step in steps} | {step.stop for step in steps})
        self._index = {cut: index for index, cut in enumerate(cuts)}
        self._touched = [-1] * len(cuts)
        self._sends: list[list[int]] = [[] for _ in cuts]

    def _pieces(self, step: Step) -> range:
        return range(self._index[step.start], self._index[step.stop])

    def last_touch(self, step: Step) -> int:
        """The latest noted step that touches the interval of `step`; -1 if there is none."""
        return max(self._touched[piece] for piece in self._pieces(step))

    def sends(self, step: Step) -> list[int]:
        """The noted sends that read the interval of `step`, earliest first."""
        return sorted({send for piece in self._pieces(step) for send in self._sends[piece]})

    def note(self, number: int, step: Step) -> None:
        """Note that `step` touches its interval; a receive clears the sends noted there, which it has waited for."""
        for piece in self._pieces(step):
            self._touched[piece] = number
            if isinstance(step, Send):
                self._sends[piece].append(number)
            else:
                self._sends[piece] = []


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
            earliest[number] = intervals.last_touch(step) + 1
        if not isinstance(step, Send):
            blockers[number] = intervals.sends(step)
            if isinstance(step, Recv) and blockers[number]:
                earliest[number] = max(earliest[number], min(number, blockers[number][-1] + 1 + ahead))
        intervals.note(number, step)
    return earliest, blockers


def compile_plan(plan: Plan, ahead: int) -> list[Instruction]:
    """Compile `plan`.

    Args:
        plan: one rank's plan.
        ahead: the most receives, at least 1, that may be posted and not yet completed.

    Returns:
        The instructions in order. The n-th RecvReduce may use scratch slot n modulo `ahead`.
    """
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
