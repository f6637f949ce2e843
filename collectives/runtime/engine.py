"""Runs collectives on one communicator: plans become lists of calls on prepared messages, which are kept and run
again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from scaffe.collectives.cuda.device import Point
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.levels import Group, InterNodePhase, IntraNodePhase, Levels, Phase
from scaffe.collectives.planning.plan import Kind, Plan, Recv, RecvReduce, Send, Step, compile_plan
from scaffe.collectives.planning.planners import require
from scaffe.collectives.runtime.arguments import CallSignature
from scaffe.collectives.runtime.backend import Backend
from scaffe.collectives.runtime.helper_threads import ANYONE, NONE, Watch
from scaffe.collectives.runtime.mismatch import require_alike
from scaffe.collectives.shared.schedule import DOUBLED
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport import wire
from scaffe.collectives.transport.transport import TAG, Message, Transport

RECEIVES_AHEAD = 8
"""Receives posted before their turn: enough to keep a link busy while a chunk is summed."""


class Execution:
    """One plan on one array: a fixed list of calls on messages that are set up ahead. ``waits_for``: the peer that each
    of them waits for; NONE for sums."""

    def __init__(self, plan: Plan, array: Any, op: str, transport: Transport,
                 ranks: Sequence[int] | None = None) -> None:
        """``array``: flat, in the transport's memory; it is not kept alive; ``ranks``: the transport's rank of each
        rank of the plan, where they differ."""
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
        """Runs the plan once. `watch` is told of the progress, so that it can name a missing peer."""
        watch.begin(self.waits_for)
        for watch.position, call in enumerate(self.calls):
            call()
        watch.end()

    def free(self) -> None:
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


PLANS_KEPT = 1024
TAGS = 32_000
"""MPI promises tags up to 32,767."""

Run = Callable[[Any, Any], None]
"""Runs one signature's collective in an array, reading another one where a library can."""


class Engine:
    """Runs blocking collectives for one thread, on a communicator of its own, and caches their plans. ``comm``: mpi4py
    communicator that nobody else uses; ``backends``: by the name of the memory that arrays lie in."""

    def __init__(self, comm: Any, topology: Topology, watch: Watch, host: Backend,
                 failed: Callable[[Exception], Exception]) -> None:
        self.watch, self.comm, self._failed = watch, comm, failed
        self.backends: dict[str, Backend] = {"host": host}
        self._topology = topology
        self._agreed: set[CallSignature] = set()
        self._runs: dict[CallSignature, Run] = {}
        self._executions: OrderedDict[tuple[CallSignature, int], Execution] = OrderedDict()

    def run(self, signature: CallSignature, array: Any, source: Any, after: Any = None,
            holds: bool = True) -> Point | None:
        """Takes part in a collective, on which the ranks have agreed.

        Args:
            array: this rank's flat array, which is worked on in place.
            source: where the values are; another array than `array` on a device, or for a library's own reductions.
            after: on a device, the point or event that the collective follows; None for the end of the caller's
                current stream.
            holds: on a device, the current stream follows the result.

        Returns:
            With `holds` False, the point on a device at which the result is there; else None.
        """
        backend = self.backends[signature.memory]
        streams = backend.streams
        if streams is not None:
            streams.begin(Point.of(after))
        try:
            run = self._runs.get(signature)
            if run is None:
                run = self._runs[signature] = self._runner(signature, backend)
            run(array, source)
            point = None if streams is None else streams.end()
        except BaseException as error:
            if streams is not None:
                streams.leave()
            if isinstance(error, Exception):
                raise self._failed(error) from error.__cause__
            raise
        if not holds or point is None:
            return point
        point.hold_and_end()
        return None

    def message_pair(self, array: Any, memory: str) -> Callable[[], None]:
        """Sets up messages between ranks 0 and 1. Returns a call that sends `array` from rank 0 to rank 1 and back; on
        other ranks it does nothing."""
        backend = self.backends[memory]
        whole = (0, array.size)
        steps: dict[int, tuple[Step, ...]] = {
            0: (Send(1, *whole), Recv(1, *whole)),
            1: (Recv(0, *whole), Send(0, *whole)),
        }
        plan = Plan(self.comm.rank, self.comm.size, array.size, steps.get(self.comm.rank, ()))
        backend.transport.tag = TAG
        execution, streams = Execution(plan, array, "sum", backend.transport), backend.streams

        def there_and_back() -> None:
            if streams is not None:
                streams.begin(Point.now())
            execution.run(self.watch)
            if streams is not None:
                streams.end().hold_and_end()
        return there_and_back

    def free(self) -> None:
        for execution in self._executions.values():
            execution.free()
        self._executions.clear()
        self._runs.clear()

    def agree(self, signature: CallSignature) -> None:
        """Checks, once per signature, that all ranks make the same call and that it can be done. Raises CommError: the
        same on every rank, where they do not or it cannot."""
        if signature not in self._agreed:
            self.compare(str(signature), self._fault(signature))
            self._agreed.add(signature)

    def compare(self, call: str, fault: str) -> None:
        """Compares a call with the other ranks'; all ranks make it. ``fault``: why this rank cannot make it; empty
        where it can. Raises CommError: the same on every rank, where calls differ or one has a fault."""
        with self.watch.for_any(call):
            everyone = self.comm.allgather((call, fault))
        require_alike(everyone)

    def _fault(self, signature: CallSignature) -> str:
        if fault := self.backends[signature.memory].fault(signature.algorithm):
            return fault
        try:
            require(signature.collective, signature.algorithm, self._topology, signature.dtype)
        except CommError as error:
            return str(error)
        return ""

    def _runner(self, signature: CallSignature, backend: Backend) -> Run:
        watch, collective, op, root = self.watch, signature.collective, signature.op, signature.root
        if signature.algorithm.library:
            call = backend.calls[signature.algorithm.library].of(collective)

            def by_library(array: Any, source: Any) -> None:
                watch.label = collective
                watch.begin(ANYONE)
                call(source, array, op, root)
                watch.end()
            return by_library

        phases, node, n_elems = self._phases(signature), backend.node, signature.n_elems

        def by_ours(array: Any, source: Any) -> None:
            watch.label = collective
            if source is not array:
                backend.copy(array, source)
            for phase in phases:
                if isinstance(phase, InterNodePhase):
                    self._run_plan(signature, array, phase.group)
                else:
                    part = array if phase.stop - phase.start == n_elems else array[phase.start : phase.stop]
                    node.run(phase.collective, part, op, phase.root, phase.parts)
        return by_ours

    def _phases(self, signature: CallSignature) -> list[Phase]:
        algorithm, collective, root = signature.algorithm, signature.collective, signature.root
        if not algorithm.is_shared:
            return [InterNodePhase(Group(self._topology, root))]
        if self._topology.n_nodes > 1:
            levels = Levels(collective, self._topology, signature.n_elems, root, signature.leaves_one_per_node)
            return levels.phases(self.comm.rank, algorithm.is_split)
        collective = "reduce" if signature.leaves_one_per_node else collective
        return [IntraNodePhase(collective + DOUBLED * algorithm.is_doubled, 0, signature.n_elems, root)]

    def _run_plan(self, signature: CallSignature, array: Any, group: Group) -> None:
        key = (signature, self.backends[signature.memory].transport.address(array))
        execution = self._executions.get(key)
        if execution is None:
            execution = self._executions[key] = self._build(signature, array, group)
            if len(self._executions) > PLANS_KEPT:
                self._executions.popitem(last=False)[1].free()
        execution.run(self.watch)

    def _build(self, signature: CallSignature, array: Any, group: Group) -> Execution:
        pattern, half = signature.algorithm.pattern, signature.algorithm.wire
        if pattern is None:
            raise CommError(f"{signature}: no messages")
        rank = self.comm.rank if group.ranks is None else list(group.ranks).index(self.comm.rank)
        n_bytes_per_elem = wire.ITEM_BYTES if half else array.itemsize
        chunk_elems = max(signature.chunk_bytes // n_bytes_per_elem, 1)
        plan = group.plan(signature.collective, pattern, rank, array.size, chunk_elems)
        backend = self.backends[signature.memory]
        backend.transport.tag = _tag(signature)
        transport = backend.wired(half) if half else backend.transport
        return Execution(plan, array, signature.op, transport, group.ranks)


def _tag(signature: CallSignature) -> int:
    """A tag made of the call: messages of different calls never match, so that a mismatch is detected (`mismatch`)."""
    return TAG + 1 + crc32(str(signature).encode()) % TAGS
