"""The event loop of `events`, compiled.

Events are (time, code). With P ranks and S steps, a code below P: that rank goes on; below P + S: the message of send
step code - P has reached the front of its queue for the outgoing port; beyond: it has reached the incoming port. A rank
has one queue for messages within its node and one for the others. At most one message of a queue waits at a port, so
that ranks which share a port take turns.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scaffe.collectives.model.machine import Machine
from scaffe.collectives.planning.plan import Plan, Recv, RecvReduce, Send
from scaffe.collectives.topology import Topology
from scaffe.jit import compiled

Events = list[tuple[float, Any]]


class Steps(NamedTuple):
    """The steps of all ranks, as in `events.StepArrays`; `owners`, `follows`, `far`: see `_queues`."""

    offsets: Any
    kinds: Any
    peers: Any
    n_bytes: Any
    matches: Any
    owners: Any
    follows: Any
    far: Any


class State(NamedTuple):
    """Per rank: its clock, its next step, whether it waits for a message, whether its queues have one at a port; per
    step: whether a send was issued, when its message arrived; per port: when it is free."""

    now: Any
    next_step: Any
    waiting: Any
    issued: Any
    arrived: Any
    out_free: Any
    in_free: Any
    queue_busy: Any


@compiled
def run(offsets: np.ndarray, kinds: np.ndarray, peers: np.ndarray, n_bytes: np.ndarray, matches: np.ndarray,
        constants: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """Simulates all ranks.

    Args:
        offsets: as in `events.StepArrays`.
        n_bytes: int64, length of each step's message.
        matches: as in `events.StepArrays`.
        constants: node and network port of each rank, int64, shape (2, ranks), ports numbered from 0 over all nodes;
            (latency s, bandwidth bytes/s) within a node and between nodes; overhead s, overhead of a sum s, bandwidth
            of sums bytes/s.

    Returns:
        float64, shape (ranks,): the finish time of every rank, in seconds.
    """
    places, links, rates = constants
    nodes, ports = places[0], places[1]
    n_ranks, n_steps = len(nodes), len(kinds)
    owners, follows, far = _queues(offsets, kinds, peers, nodes)
    steps = Steps(offsets, kinds, peers, n_bytes, matches, owners, follows, far)
    state = State(now=np.zeros(n_ranks), next_step=offsets[:-1].copy(), waiting=np.zeros(n_ranks, np.bool_),
                  issued=np.zeros(n_steps, np.bool_), arrived=np.full(n_steps, np.inf), out_free=np.zeros(2 * n_ranks),
                  in_free=np.zeros(2 * n_ranks), queue_busy=np.zeros((n_ranks, 2), np.bool_))
    events = [(0.0, np.int64(rank)) for rank in range(n_ranks)]
    while len(events):
        time, code = heapq.heappop(events)
        if code < n_ranks:
            _advance(code, steps, state, rates, events)
        elif code < n_ranks + n_steps:
            _leave(time, code - n_ranks, steps, state, ports, links, events)
        else:
            _arrive(time, code - n_ranks - n_steps, steps, state, ports, links, events)
    times: np.ndarray = state.now
    return times


@compiled
def _queues(offsets: np.ndarray, kinds: np.ndarray, peers: np.ndarray,
            nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every step: its rank, the send that follows a send in its queue (-1: none), whether it crosses nodes."""
    owners = np.empty(len(kinds), np.int64)
    follows = np.full(len(kinds), -1)
    far = np.empty(len(kinds), np.int64)
    for rank in range(len(nodes)):
        last = np.full(2, -1)
        for step in range(offsets[rank], offsets[rank + 1]):
            owners[step] = rank
            far[step] = nodes[rank] != nodes[peers[step]]
            if kinds[step] == 0:
                if last[far[step]] >= 0:
                    follows[last[far[step]]] = step
                last[far[step]] = step
    return owners, follows, far


@compiled
def _advance(rank: int, steps: Steps, state: State, rates: np.ndarray, events: Events) -> None:
    """Runs the rank's next step, if it can run."""
    step = state.next_step[rank]
    if step == steps.offsets[rank + 1]:
        return
    kind = steps.kinds[step]
    if kind != 0 and state.arrived[steps.matches[step]] == np.inf:
        state.waiting[rank] = True
        return
    state.next_step[rank] += 1
    if kind == 0:
        state.now[rank] += rates[0]
        state.issued[step] = True
        if not state.queue_busy[rank, steps.far[step]]:
            state.queue_busy[rank, steps.far[step]] = True
            heapq.heappush(events, (state.now[rank], len(state.now) + step))
    else:
        state.now[rank] = max(state.now[rank], state.arrived[steps.matches[step]]) + rates[0]
        if kind == 2:
            state.now[rank] += rates[1] + steps.n_bytes[step] / rates[2]
    heapq.heappush(events, (state.now[rank], rank))


@compiled
def _leave(time: float, step: int, steps: Steps, state: State, ports: np.ndarray, links: np.ndarray,
           events: Events) -> None:
    """Passes a message through the outgoing port: ports are numbered the ranks' own first, then the network's."""
    rank, far, n_ranks = steps.owners[step], steps.far[step], len(ports)
    port = n_ranks + ports[rank] if far else rank
    start = max(time, state.out_free[port])
    state.out_free[port] = start + steps.n_bytes[step] / links[far, 1]
    heapq.heappush(events, (start + links[far, 0], n_ranks + len(steps.kinds) + step))
    following = steps.follows[step]
    state.queue_busy[rank, far] = following >= 0 and state.issued[following]
    if state.queue_busy[rank, far]:
        heapq.heappush(events, (state.out_free[port], n_ranks + following))


@compiled
def _arrive(time: float, step: int, steps: Steps, state: State, ports: np.ndarray, links: np.ndarray,
            events: Events) -> None:
    """Passes a message through the incoming port; a rank that waits for it goes on."""
    peer, far = steps.peers[step], steps.far[step]
    port = len(ports) + ports[peer] if far else peer
    state.in_free[port] = max(time, state.in_free[port]) + steps.n_bytes[step] / links[far, 1]
    state.arrived[step] = state.in_free[port]
    if state.waiting[peer] and state.next_step[peer] == steps.matches[step]:
        state.waiting[peer] = False
        heapq.heappush(events, (max(state.now[peer], state.arrived[step]), np.int64(peer)))


_KINDS = {Send: 0, Recv: 1, RecvReduce: 2}


@dataclass(frozen=True, slots=True)
class StepArrays:
    """The steps of all ranks, one rank after another.

    Attributes:
        offsets: int64, shape (ranks + 1,): rank r's steps are [offsets[r], offsets[r + 1]).
        kinds: int8, shape (steps,): 0 Send, 1 Recv, 2 RecvReduce.
        peers: int32, shape (steps,).
        n_elems: int64, shape (steps,).
        matches: int64, shape (steps,): the step at the other end of the message.
    """

    offsets: np.ndarray
    kinds: np.ndarray
    peers: np.ndarray
    n_elems: np.ndarray
    matches: np.ndarray


def compile_plans(plans: Sequence[Plan]) -> StepArrays:
    """Lays all ranks' plans (one per rank, in rank order) out as arrays."""
    rows = [(_KINDS[type(step)], step.peer, step.stop - step.start) for plan in plans for step in plan]
    kinds, peers, n_elems = np.array(rows, np.int64).reshape(-1, 3).T
    offsets = np.cumsum([0, *map(len, plans)])
    ranks = np.repeat(np.arange(len(plans)), np.diff(offsets))
    matches = _match(kinds == 0, ranks, peers, len(plans))
    return StepArrays(offsets, kinds.astype(np.int8), peers.astype(np.int32), n_elems.copy(), matches)


def repeat(steps: StepArrays, n_repeats: int, last_elems: int) -> StepArrays:
    """Repeats every rank's steps, as trees do chunk after chunk."""
    n_steps = np.diff(steps.offsets)
    offsets = steps.offsets * n_repeats
    ranks = np.repeat(np.arange(len(n_steps)), n_steps * n_repeats)
    repetition, place = np.divmod(np.arange(offsets[-1]) - offsets[ranks], n_steps[ranks])
    source = steps.offsets[ranks] + place
    match, peers = steps.matches[source], steps.peers[source]
    matches = offsets[peers] + repetition * n_steps[peers] + match - steps.offsets[peers]
    n_elems = np.where(repetition == n_repeats - 1, last_elems, steps.n_elems[source])
    return StepArrays(offsets, steps.kinds[source], peers, n_elems, matches)


def _match(is_send: np.ndarray, ranks: np.ndarray, peers: np.ndarray, n_ranks: int) -> np.ndarray:
    """Pairs the sends and receives of every (source, destination) in their order."""
    sends, receives = np.flatnonzero(is_send), np.flatnonzero(~is_send)
    by_send = sends[np.argsort(ranks[sends] * n_ranks + peers[sends], kind="stable")]
    by_receive = receives[np.argsort(peers[receives] * n_ranks + ranks[receives], kind="stable")]
    matches = np.empty(len(ranks), np.int64)
    matches[by_send], matches[by_receive] = by_receive, by_send
    return matches


def finish_times(steps: StepArrays, topology: Topology, elem_bytes: int, machine: Machine) -> np.ndarray:
    """Simulates all ranks. Returns float64, shape (ranks,): seconds from a common start until each rank has run all its
    steps."""
    links = np.array([[machine.intra_latency, machine.intra_bandwidth],
                      [machine.inter_latency, machine.inter_bandwidth]])
    rates = np.array([machine.overhead, machine.sum_overhead, machine.sum_bandwidth])
    number: dict[tuple[int, int], int] = {}  # of a network port; a node's ranks take its ports in turn
    ports = [number.setdefault((node, topology.node_rank(rank) % machine.ports), len(number))
             for rank, node in enumerate(topology.node_of_rank)]
    places = np.array([topology.node_of_rank, ports])
    times: np.ndarray = run(steps.offsets, steps.kinds, steps.peers, steps.n_elems * elem_bytes, steps.matches,
                            (places, links, rates))
    return times
