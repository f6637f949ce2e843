"""Predicts how long `M` and `S` take across nodes, phase by phase.

A pass begins when the last rank of its node has come. What goes across begins when all who go have come, and all
shares' messages are simulated together, since ranks of a node may share a network port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scaffe.collectives.model.events import compile_plans, finish_times
from scaffe.collectives.model.machine import Machine
from scaffe.collectives.planning import plan as partition
from scaffe.collectives.planning.algorithm import Pattern
from scaffe.collectives.planning.levels import InterNodePhase, IntraNodePhase, Levels, Phase
from scaffe.collectives.planning.plan import Plan, Step
from scaffe.collectives.shared.schedule import BY_PARTS, Segment, segments


def level_time(levels: Levels, pattern: Pattern, is_split: bool, chunk_bytes: int, machine: Machine) -> float:
    """Predicts one call, with elements of one byte. ``is_split``: by `S`, else by `M`. Returns seconds from the ranks'
    common start until the last rank is done."""
    todo = [levels.phases(rank, is_split) for rank in range(levels.topology.n_ranks)]
    clocks = np.zeros(levels.topology.n_ranks)
    while any(todo):
        for node in levels.topology.nodes:
            _pass(node, todo, clocks, machine)
        going = [rank for rank, phases in enumerate(todo) if phases and isinstance(phases[0], InterNodePhase)]
        if going:
            plans = [Plan(rank, levels.topology.n_ranks, levels.n_elems,
                          _steps(levels, pattern, chunk_bytes, rank, phases[0]) if phases else ())
                     for rank, phases in enumerate(todo)]
            clocks[going] = clocks[going].max() + finish_times(compile_plans(plans), levels.topology, 1, machine)[going]
            for rank in going:
                todo[rank].pop(0)
    return float(clocks.max())


def pass_time(phase: IntraNodePhase, n_ranks: int, machine: Machine) -> float:
    """Predicts a pass of a node of `n_ranks`, an element being a byte: its busiest port's and its busiest sum's time.

    Every part is worked on by the rank that owns it, and what nobody owns by all ranks alike.
    """
    port_in, port_out, summed = np.zeros((3, n_ranks))
    for part in segments_of(phase, n_ranks):
        for worker, n_bytes in _work(phase.collective, part, n_ranks):
            for source in set(part.sources) - {worker}:
                port_in[worker] += n_bytes
                port_out[source] += n_bytes
            for target in set(part.targets) - {worker}:
                port_out[worker] += n_bytes
                port_in[target] += n_bytes
            summed[worker] += n_bytes * (len(part.sources) - 1)
    busiest = float(max(port_in.max(), port_out.max()))
    return (machine.pass_overhead + machine.intra_latency + busiest / machine.intra_bandwidth
            + float(summed.max()) / machine.sum_bandwidth)


def segments_of(phase: IntraNodePhase, n_ranks: int) -> list[Segment]:
    """What a pass of a node of `n_ranks` does, in elements of the whole buffer."""
    found = segments(phase.collective, n_ranks, phase.stop - phase.start, phase.root, phase.parts)
    return [Segment(part.start + phase.start, part.end + phase.start, part.sources, part.targets) for part in found]


def _work(collective: str, part: Segment, n_ranks: int) -> list[tuple[int, int]]:
    """Who works on how many bytes of a part."""
    if collective in BY_PARTS:
        return [(part.targets[0] if collective == "reduce_scatter" else part.sources[0], part.end - part.start)]
    cuts = partition.all_bounds(n_ranks, part.end - part.start)
    return [(rank, cuts[rank + 1] - cuts[rank]) for rank in range(n_ranks)]


def _pass(node: Sequence[int], todo: Sequence[list[Phase]], clocks: np.ndarray, machine: Machine) -> None:
    """Runs a node's passes up to where one of its ranks goes across."""
    ranks = list(node)
    while True:
        heads = [todo[rank][0] if todo[rank] else None for rank in ranks]
        if not isinstance(heads[0], IntraNodePhase) or any(head != heads[0] for head in heads):
            return
        clocks[ranks] = clocks[ranks].max() + pass_time(heads[0], len(ranks), machine)
        for rank in ranks:
            todo[rank].pop(0)


def _steps(levels: Levels, pattern: Pattern, chunk_bytes: int, rank: int, phase: Phase) -> tuple[Step, ...]:
    """A rank's messages across, with ranks of the whole job as peers."""
    if isinstance(phase, IntraNodePhase) or phase.group.ranks is None:
        return ()
    ranks = list(phase.group.ranks)
    plan = phase.group.plan(levels.collective, pattern, ranks.index(rank), levels.n_elems, chunk_bytes)
    return tuple(replace(step, peer=ranks[step.peer]) for step in plan)
