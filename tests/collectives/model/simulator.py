"""Runs the plans of all ranks in one process, to test planners under any order of events.

Messages may leave as late as a plan's semantics (see `plan`) allow: with `eager=False` a message is a view of the
sender's buffer until the receiver takes it, as in a rendezvous over shared memory or RDMA. So a plan that overwrites
what it is still sending, or relies on MPI's buffering, shows wrong values or a deadlock.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.model.events import compile_plans, finish_times
from scaffe.collectives.model.level_cost import segments_of
from scaffe.collectives.model.machine import Machine
from scaffe.collectives.planning.algorithm import Pattern
from scaffe.collectives.planning.call import Cost
from scaffe.collectives.planning.levels import InterNodePhase, IntraNodePhase, Levels, Phase
from scaffe.collectives.planning.plan import Plan, Recv, RecvReduce, Send
from scaffe.collectives.shared.schedule import Segment
from scaffe.collectives.topology import Topology

Operation = Callable[[np.ndarray, np.ndarray], np.ndarray]


class SimulationError(CommError):
    """Plans that do not fit together; names the rank, the step, and what is wrong."""


@dataclass(slots=True)
class _Message:
    start: int
    stop: int
    values: np.ndarray


@dataclass(slots=True)
class _Rank:
    """Where a simulated rank stands: its next step, its unfinished sends, and a message that waits to be added."""

    plan: Plan
    buffer: np.ndarray
    defined: np.ndarray
    next_step: int = 0
    sending: list[_Message] = field(default_factory=list)
    scratch: np.ndarray | None = None

    @property
    def done(self) -> bool:
        return self.next_step == len(self.plan.steps)

    def busy(self, start: int, stop: int) -> bool:
        """Whether an unfinished send overlaps [start, stop)."""
        return any(message.start < stop and start < message.stop for message in self.sending)


def validate(plan: Plan) -> None:
    """Raise CommError, naming the step, if a peer or an interval is not valid."""
    if not 0 <= plan.rank < plan.n_ranks or plan.n_elems < 0:
        raise CommError(f"plan: rank {plan.rank} of {plan.n_ranks} ranks with {plan.n_elems} elements cannot be")
    for index, step in enumerate(plan.steps):
        if not 0 <= step.peer < plan.n_ranks or step.peer == plan.rank:
            raise CommError(f"plan of rank {plan.rank}, step {index}: {step} needs another rank below "
                            f"{plan.n_ranks} as peer")
        if not 0 <= step.start < step.stop <= plan.n_elems:
            raise CommError(f"plan of rank {plan.rank}, step {index}: {step} needs "
                            f"0 <= start < stop <= {plan.n_elems}")


class Simulation:
    """All ranks of one collective. Build it, `run` it, then read `buffers`."""

    def __init__(self, plans: Sequence[Plan], buffers: Sequence[np.ndarray], operation: Operation = np.add,
                 defined: Sequence[np.ndarray] | None = None, eager: bool = False, wait_for_sends: bool = True) -> None:
        """Args:
            buffers: per rank a flat array of n_elems, changed in place.
            operation: op(own, received) of RecvReduce.
            defined: per rank a boolean array: which elements hold a value at the start (default: all). Reading any
                other element is an error.
            eager: messages are copied when sent, as small MPI messages are; otherwise they stay views.
            wait_for_sends: False simulates a broken executor that writes into what it is still sending.
        """
        if defined is None:
            defined = [np.ones(plan.n_elems, bool) for plan in plans]
        self.buffers = buffers
        self._ranks = [_Rank(*state) for state in zip(plans, buffers, defined, strict=True)]
        self._operation, self._eager, self._wait_for_sends = operation, eager, wait_for_sends
        self._channels: dict[tuple[int, int], deque[_Message]] = defaultdict(deque)

    def run(self, seed: int | None = None) -> None:
        """Runs all plans to their ends.

        Args:
            seed: of the random order in which ranks advance; None: always the rank that was woken last.

        Raises:
            SimulationError: on a deadlock, a message of another length than expected or never received, or a read of
                elements that hold no value yet.
        """
        for state in self._ranks:
            validate(state.plan)
        pick = (lambda n_runnable: -1) if seed is None else random.Random(seed).randrange
        runnable = list(range(len(self._ranks)))
        while runnable:
            place = pick(len(runnable))
            rank = runnable[place]
            woken = self._advance(rank)
            if woken is None:
                runnable[place] = runnable[-1]
                runnable.pop()
            elif woken not in runnable:
                runnable.append(woken)
        self._check_end()

    def _advance(self, rank: int) -> int | None:
        """Runs one step of `rank`. Returns a rank that may now be able to go on, None where this one waits."""
        state = self._ranks[rank]
        if state.done:
            return None
        step = state.plan.steps[state.next_step]
        if isinstance(step, Send):
            return self._send(rank, step)
        if isinstance(step, Recv):
            return self._recv(rank, step)
        return self._recv_reduce(rank, step)

    def _send(self, rank: int, step: Send) -> int:
        state = self._ranks[rank]
        if not state.defined[step.start:step.stop].all():
            raise SimulationError(f"rank {rank}, step {state.next_step}: {step} reads elements not yet written")
        values = state.buffer[step.start:step.stop]
        message = _Message(step.start, step.stop, values.copy() if self._eager else values)
        if not self._eager:
            state.sending.append(message)
        self._channels[rank, step.peer].append(message)
        state.next_step += 1
        return step.peer

    def _recv(self, rank: int, step: Recv) -> int | None:
        state = self._ranks[rank]
        if self._must_wait(state, step) or not self._channels[step.peer, rank]:
            return None
        state.buffer[step.start:step.stop] = self._take(rank, step)
        state.defined[step.start:step.stop] = True
        state.next_step += 1
        return step.peer

    def _recv_reduce(self, rank: int, step: RecvReduce) -> int | None:
        state = self._ranks[rank]
        if state.scratch is None:
            if not self._channels[step.peer, rank]:
                return None
            state.scratch = self._take(rank, step).copy()
            return step.peer
        if self._must_wait(state, step):
            return None
        if not state.defined[step.start:step.stop].all():
            raise SimulationError(f"rank {rank}, step {state.next_step}: {step} adds to elements not yet written")
        own = state.buffer[step.start:step.stop]
        own[...] = self._operation(own, state.scratch)
        state.scratch = None
        state.next_step += 1
        return rank

    def _must_wait(self, state: _Rank, step: Recv | RecvReduce) -> bool:
        return self._wait_for_sends and state.busy(step.start, step.stop)

    def _take(self, rank: int, step: Recv | RecvReduce) -> np.ndarray:
        message = self._channels[step.peer, rank].popleft()
        if message.stop - message.start != step.stop - step.start:
            raise SimulationError(f"rank {rank}, step {self._ranks[rank].next_step}: {step} meets a message of "
                                  f"{message.stop - message.start} elements")
        sending = self._ranks[step.peer].sending
        if not self._eager:
            del sending[next(index for index, sent in enumerate(sending) if sent is message)]
        return message.values

    def _check_end(self) -> None:
        stuck = [f"rank {rank} at step {state.next_step} {state.plan.steps[state.next_step]}"
                 for rank, state in enumerate(self._ranks) if not state.done]
        if stuck:
            raise SimulationError("deadlock: " + "; ".join(stuck))
        lost = [f"{source} to {peer}" for (source, peer), channel in self._channels.items() if channel]
        if lost:
            raise SimulationError("messages never received: from rank " + ", ".join(lost))


@dataclass
class LevelSimulation:
    """All ranks of one collective on several nodes.

    Attributes:
        is_split: by `S`, else by `M`.
        buffers: per rank a flat array of n_elems, changed in place.
        defined: per rank a boolean array: which elements hold a value.
        operation: op(one rank's, the next one's).
    """

    levels: Levels
    pattern: Pattern
    is_split: bool
    chunk_elems: int
    buffers: Sequence[np.ndarray]
    defined: Sequence[np.ndarray]
    operation: Operation = np.add

    def run(self, seed: int = 0) -> None:
        """Runs all phases; those that can run do so in an order drawn with `seed`.

        Raises:
            SimulationError: where ranks wait for one another, or read elements that hold no value.
        """
        topology, chance = self.levels.topology, random.Random(seed)
        waiting = [self.levels.phases(rank, self.is_split) for rank in range(topology.n_ranks)]
        while any(waiting):
            ready = [ranks for ranks in (*topology.nodes, *_groups(waiting)) if _meet(ranks, waiting)]
            if not ready:
                raise SimulationError(f"deadlock: phases {[phases[:1] for phases in waiting]}")
            ranks = chance.choice(ready)
            self._perform([waiting[rank].pop(0) for rank in ranks], ranks, seed)

    def _perform(self, phases: Sequence[Phase], ranks: Sequence[int], seed: int) -> None:
        buffers, defined = ([which[rank] for rank in ranks] for which in (self.buffers, self.defined))
        if isinstance(phases[0], IntraNodePhase):
            for part in segments_of(phases[0], len(ranks)):
                _combine(part, buffers, defined, self.operation)
            return
        plans = [phase.group.plan(self.levels.collective, self.pattern, place, self.levels.n_elems, self.chunk_elems)
                 for place, phase in enumerate(phases) if isinstance(phase, InterNodePhase)]
        Simulation(plans, buffers, self.operation, defined).run(seed)


def _groups(waiting: Sequence[Sequence[Phase]]) -> set[tuple[int, ...]]:
    heads = [phases[0] for phases in waiting if phases]
    return {tuple(head.group.ranks or ()) for head in heads if isinstance(head, InterNodePhase)}


def _meet(ranks: Sequence[int], waiting: Sequence[Sequence[Phase]]) -> bool:
    """Whether all of these ranks are at the same phase, and it is theirs together."""
    heads = [waiting[rank][0] if waiting[rank] else None for rank in ranks]
    if isinstance(heads[0], InterNodePhase):
        return all(head == heads[0] for head in heads) and tuple(heads[0].group.ranks or ()) == tuple(ranks)
    return heads[0] is not None and all(head == heads[0] for head in heads)


def _combine(part: Segment, buffers: Sequence[np.ndarray], defined: Sequence[np.ndarray],
             operation: Operation) -> None:
    where = slice(part.start, part.end)
    if not all(defined[rank][where].all() for rank in part.sources):
        raise SimulationError(f"a pass reads elements {part.start} to {part.end} where they hold no value")
    total = buffers[part.sources[0]][where].copy()
    for rank in part.sources[1:]:
        total = operation(total, buffers[rank][where])
    for rank in part.targets:
        buffers[rank][where] = total
        defined[rank][where] = True


@dataclass(frozen=True, slots=True)
class Count:
    """What one rank's plan does: messages and elements sent and received, and elements added."""

    messages_sent: int
    messages_received: int
    elems_sent: int
    elems_received: int
    elems_reduced: int


def count(plan: Plan) -> Count:
    """Counts one rank's messages and elements."""
    sent = [step.stop - step.start for step in plan if isinstance(step, Send)]
    copied = [step.stop - step.start for step in plan if isinstance(step, Recv)]
    reduced = [step.stop - step.start for step in plan if isinstance(step, RecvReduce)]
    return Count(len(sent), len(copied) + len(reduced), sum(sent), sum(copied) + sum(reduced), sum(reduced))


def rounds(plans: Sequence[Plan]) -> int:
    """Returns the length of the longest chain of messages that wait for one another, over all ranks' plans."""
    # the finish time on a machine where a message takes time 1 and nothing else takes any
    unit = Machine(1, float("inf"), 1, float("inf"), 0, 0, float("inf"))
    return round(float(finish_times(compile_plans(plans), Topology.flat(len(plans)), 1, unit).max()))


def measured_cost(plans: Sequence[Plan]) -> Cost:
    """The cost of all ranks' `plans`, counted."""
    counts = [count(plan) for plan in plans]
    n_elems = plans[0].n_elems
    return Cost(rounds(plans), max(c.elems_sent for c in counts) / n_elems,
                max(c.elems_received for c in counts) / n_elems)
