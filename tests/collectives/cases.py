"""Awkward cases that all tests of collectives share, payloads that differ everywhere, and what must come out."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.collectives.planning.algorithm import COLLECTIVES, parse_pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.planners import plans, short_names
from scaffe.collectives.topology import Topology
from tests.collectives.model.simulator import Simulation

RANKS = (1, 2, 3, 4, 5, 7, 8)
SOME_RANKS = (*range(1, 10), 13, 16, 17, 33)
rank_counts = pytest.mark.parametrize("rank_counts", [
    pytest.param(SOME_RANKS, id="some"),
    pytest.param(sorted({*range(1, 34)} - {*SOME_RANKS}), id="others", marks=pytest.mark.thorough)])
"""All from 1 to 33 together."""
N_ELEMS = (0, 1, 37, 64)
TREES = ("C", "B", "CB-4", "CC-3", "CCB-2-3", "CB-node")
EVERY_NAME = [(collective, name) for collective in COLLECTIVES
              for name in dict.fromkeys([*short_names(collective), *(TREES if "C" in short_names(collective) else ())])]
"""Of every planner that is there."""
ROOTED = [(collective, name) for collective, name in EVERY_NAME if collective in ("reduce", "bcast")]


def topologies(n_ranks: int) -> list[Topology]:
    """One rank a node; 3 ranks a node; and nodes of unequal size whose ranks are interleaved."""
    uneven = [rank % 3 if rank % 4 else 0 for rank in range(n_ranks)]
    return [Topology.flat(n_ranks), Topology.from_ranks_per_node(n_ranks, 3), Topology(uneven)]


def unique_payload(n_ranks: int, n_elems: int) -> np.ndarray:
    """(n_ranks, n_elems) uint64, every element random: sums are exact (modulo 2^64) and betray any mix-up."""
    return np.random.default_rng(n_ranks * 1000 + n_elems).integers(0, 2**63, (n_ranks, n_elems), np.uint64)


def float_payload(n_ranks: int, n_elems: int) -> np.ndarray:
    """(n_ranks, n_elems) float32 of very different magnitudes: another order of sums gives other bits."""
    rng = np.random.default_rng(5)
    return (rng.standard_normal((n_ranks, n_elems)) * 10.0 ** rng.integers(-3, 4, (n_ranks, n_elems))).astype("f4")


def defined_at_start(collective: str, call: Call) -> list[np.ndarray]:
    """Which elements hold a value that counts, on each rank."""
    defined = [np.full(call.n_elems, collective != "allgather" and collective != "bcast") for _ in range(call.n_ranks)]
    if collective == "bcast":
        defined[call.root][:] = True
    if collective == "allgather":
        for rank in range(call.n_ranks):
            defined[rank][part(call, rank)] = True
    return defined


def part(call: Call, rank: int) -> slice:
    """The elements that `rank` owns, counted here again."""
    counts = call.counts or [(r + 1) * call.n_elems // call.n_ranks - r * call.n_elems // call.n_ranks
                             for r in range(call.n_ranks)]
    return slice(sum(counts[:rank]), sum(counts[:rank + 1]))


def expected(collective: str, payload: np.ndarray, call: Call) -> list[tuple[int, slice, np.ndarray]]:
    """(rank, slice, values) that must hold at the end."""
    total, whole = payload.sum(axis=0), slice(None)
    everyone = range(call.n_ranks)
    if collective == "reduce":
        return [(call.root, whole, total)]
    if collective == "bcast":
        return [(rank, whole, payload[call.root]) for rank in everyone]
    if collective == "allreduce":
        return [(rank, whole, total) for rank in everyone]
    if collective == "reduce_scatter":
        return [(rank, part(call, rank), total[part(call, rank)]) for rank in everyone]
    gathered = np.concatenate([payload[rank][part(call, rank)] for rank in everyone])
    return [(rank, whole, gathered) for rank in everyone]


def simulate(collective: str, name: str, call: Call, payload: np.ndarray, **options) -> list[np.ndarray]:
    """All ranks' buffers after a simulated run; `seed` and Simulation's own options."""
    seed = options.pop("seed", None)
    buffers = [row.copy() for row in payload]
    defined = defined_at_start(collective, call)
    Simulation(plans(collective, parse_pattern(name), call), buffers, defined=defined, **options).run(seed)
    return buffers


def check(collective: str, name: str, call: Call, **options) -> None:
    """Simulate, and compare every element that counts."""
    payload = unique_payload(call.n_ranks, call.n_elems)
    buffers = simulate(collective, name, call, payload, **options)
    for rank, where, values in expected(collective, payload, call):
        np.testing.assert_array_equal(buffers[rank][where], values, f"{collective} by {name}, rank {rank}, {call}")
