"""Runs one rank's plan over a transport: built once, then started again and again without allocation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scaffe.collectives.planning.plan import Kind, Plan, RecvReduce, Send, compile_plan
from scaffe.collectives.runtime.helper_threads import NONE, Watch
from scaffe.collectives.transport.transport import Message, Transport

RECEIVES_AHEAD = 8
"""Receives posted before their turn: enough to keep a link busy while a chunk is summed."""


class Execution:
    """One plan on one array: a fixed list of calls on messages that are set up ahead.

    Attributes:
        calls: what `run` calls, in order.
        waits_for: the peer that each of them waits for; NONE for sums.
    """

    def __init__(self, plan: Plan, array: Any, op: str, transport: Transport,
                 ranks: Sequence[int] | None = None) -> None:
        """Args:
            plan: this rank's.
            array: flat, in the transport's memory; it is not kept alive.
            op: of RecvReduce.
            transport: makes the messages.
            ranks: the transport's rank of each rank of the plan, where they differ.
        """
        self._transport, self._op = transport, op
        self._flat = transport.view(array) if plan.steps else array
        n_reduces = sum(isinstance(step, RecvReduce) for step in plan.steps)
        slots = range(min(RECEIVES_AHEAD, n_reduces))
        self._slots = [transport.scratch(slot, plan.scratch_elems, array) for slot in slots]
        peers = [ranks[step.peer] if ranks is not None else step.peer for step in plan.steps]
        self._messages = self._make_messages(plan, peers)
        program = compile_plan(plan, RECEIVES_AHEAD)
        self.calls: list[Callable[[], object]] = [self._call(line.kind, line.step) for line in program]
        self.waits_for = [NONE if line.kind is Kind.COMBINE else peers[line.step] for line in program]

    def run(self, watch: Watch) -> None:
        """Takes part once; `watch` learns where this rank is, so that a missing peer can be named."""
        watch.begin(self.waits_for)
        for watch.position, call in enumerate(self.calls):
            call()
        watch.end()

    def free(self) -> None:
        """Gives the messages back to MPI."""
        for message, _ in self._messages:
            message.Free()

    def _make_messages(self, plan: Plan, peers: list[int]) -> list[tuple[Message, Callable[[], object] | None]]:
        """Per step its message and, for a RecvReduce, the sum that follows."""
        made: list[tuple[Message, Callable[[], object] | None]] = []
        n_reduces = 0
        for step, peer in zip(plan.steps, peers, strict=True):
            part = self._flat[step.start : step.stop]
            if isinstance(step, Send):
                made.append((self._transport.sender(part, peer), None))
            elif isinstance(step, RecvReduce):
                slot = self._slots[n_reduces % RECEIVES_AHEAD][: part.size]
                combine = self._transport.combiner(part, slot, self._op)
                made.append((self._transport.receiver(slot, peer), combine))
                n_reduces += 1
            else:
                made.append((self._transport.receiver(part, peer), None))
        return made

    def _call(self, kind: Kind, step: int) -> Callable[[], object]:
        message, combine = self._messages[step]
        if kind is Kind.COMBINE and combine is not None:
            return combine
        return message.Start if kind in (Kind.POST, Kind.SEND) else message.Wait
