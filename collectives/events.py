"""Discrete-event simulation of plans on a machine: when does the last rank finish?

Every rank runs its steps in order. A message leaves through the sender's port and arrives through the receiver's,
each serving messages one after another in the order in which they are sent; the receiver then spends its overhead and
the sum. Buffers for messages on their way are unlimited, and waiting for one's own sends is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .machine import Machine
from .plan import Plan, Recv, RecvReduce, Send
from .topology import Topology

_KINDS = {Send: 0, Recv: 1, RecvReduce: 2}


@dataclass(frozen=True, slots=True)
class StepArrays:
    """The steps of all ranks, one after another: rank r's are [offsets[r], offsets[r + 1]).

    kinds: int8, 0 Send, 1 Recv, 2 RecvReduce. peers: int32. n_elems: int64. matches: int64, the index of the step at
    the other end of the message.
    """

    offsets: np.ndarray
    kinds: np.ndarray
    peers: np.ndarray
    n_elems: np.ndarray
    matches: np.ndarray


def compile_plans(plans: Sequence[Plan], n_repeats: int = 1, last_elems: int | None = None) -> StepArrays:
    """Arrays of `plans`, each plan's steps repeated `n_repeats` times, as trees do for chunk after chunk.

    `last_elems`: the length of the messages of the last repetition, where it differs from the others'.
    """
    tables = [np.tile(_rows(plan), (n_repeats, 1)) for plan in plans]
    if last_elems is not None:
        for plan, table in zip(plans, tables):
            table[len(table) - len(plan):, 2] = last_elems
    offsets = np.cumsum([0, *map(len, tables)])
    kinds, peers, n_elems = np.concatenate(tables).T
    ranks = np.repeat(np.arange(len(plans)), np.diff(offsets))
    return StepArrays(offsets, kinds.astype(np.int8), peers.astype(np.int32), n_elems.copy(),
                      _match(kinds == 0, ranks, peers, len(plans)))


def _rows(plan: Plan) -> np.ndarray:
    rows = [(_KINDS[type(step)], step.peer, step.stop - step.start) for step in plan]
    return np.array(rows, np.int64).reshape(-1, 3)


def _match(is_send: np.ndarray, ranks: np.ndarray, peers: np.ndarray, n_ranks: int) -> np.ndarray:
    """Pairs the sends and receives of every (source, destination), each in their order."""
    sends, receives = np.flatnonzero(is_send), np.flatnonzero(~is_send)
    by_send = sends[np.argsort(ranks[sends] * n_ranks + peers[sends], kind="stable")]
    by_receive = receives[np.argsort(peers[receives] * n_ranks + ranks[receives], kind="stable")]
    matches = np.empty(len(ranks), np.int64)
    matches[by_send], matches[by_receive] = by_receive, by_send
    return matches


def finish_times(steps: StepArrays, topology: Topology, elem_bytes: int, machine: Machine) -> np.ndarray:
    """Seconds (float64, one a rank) from a common start until each rank has run all its steps."""
    from .events_kernel import run

    links = np.array([[machine.intra_latency, machine.intra_bandwidth],
                      [machine.inter_latency, machine.inter_bandwidth]])
    rates = np.array([machine.overhead, machine.sum_overhead, machine.sum_bandwidth])
    return run(steps.offsets, steps.kinds, steps.peers, steps.n_elems * elem_bytes, steps.matches,
               (np.array(topology.node_of_rank), links, rates))
