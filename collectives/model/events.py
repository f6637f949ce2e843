"""Discrete-event simulation of plans on a machine: when does the last rank finish?

Every rank runs its steps in order. A message leaves through the sender's port and arrives through the receiver's port;
each port serves one message after another (ranks that share a port take turns). The receiver then spends its overhead
and the time of the sum. Buffers for messages under way are unlimited, and waiting for one's own sends is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaffe.collectives.model.machine import Machine
from scaffe.collectives.planning.plan import Plan, Recv, RecvReduce, Send
from scaffe.collectives.topology import Topology

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
    """Repeats every rank's steps, as trees do chunk after chunk.

    Args:
        steps: of one chunk.
        n_repeats: how many chunks.
        last_elems: length of the last chunk's messages.
    """
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
    """Simulates all ranks.

    Args:
        steps: of all ranks.
        topology: which ranks share a node.
        elem_bytes: bytes per element.
        machine: its latencies, bandwidths and overheads.

    Returns:
        float64, shape (ranks,): seconds from a common start until each rank has run all its steps.
    """
    from scaffe.collectives.model.events_kernel import run

    links = np.array([[machine.intra_latency, machine.intra_bandwidth],
                      [machine.inter_latency, machine.inter_bandwidth]])
    rates = np.array([machine.overhead, machine.sum_overhead, machine.sum_bandwidth])
    places = np.array([topology.node_of_rank, network_ports(topology, machine.ports)])
    times: np.ndarray = run(steps.offsets, steps.kinds, steps.peers, steps.n_elems * elem_bytes, steps.matches,
                            (places, links, rates))
    return times


def network_ports(topology: Topology, ports_per_node: int) -> list[int]:
    """Numbers the network ports that ranks use: a node's ranks take its ports in turn."""
    number: dict[tuple[int, int], int] = {}
    return [number.setdefault((node, topology.node_rank(rank) % ports_per_node), len(number))
            for rank, node in enumerate(topology.node_of_rank)]
