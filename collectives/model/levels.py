"""Runs the phases of all ranks in one process: `M` and `S` across nodes as the simulator runs plans."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaffe.collectives.model.simulator import Operation, Simulation, SimulationError
from scaffe.collectives.planning.levels import Across, Levels, Phase, Within
from scaffe.collectives.planning.pattern import Pattern
from scaffe.collectives.shared.schedule import Segment, segments


def segments_of(phase: Within, n_ranks: int) -> list[Segment]:
    """What a pass of a node of `n_ranks` does, in elements of the whole buffer."""
    found = segments(phase.collective, n_ranks, phase.stop - phase.start, phase.root, phase.parts)
    return [Segment(part.start + phase.start, part.end + phase.start, part.sources, part.targets) for part in found]


@dataclass
class LevelSimulation:
    """All ranks of one collective on several nodes.

    Attributes:
        levels: the collective.
        pattern: what runs across.
        is_split: by `S`, else by `M`.
        chunk_elems: the longest message.
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
        if isinstance(phases[0], Within):
            for part in segments_of(phases[0], len(ranks)):
                _combine(part, buffers, defined, self.operation)
            return
        plans = [phase.group.plan(self.levels.collective, self.pattern, place, self.levels.n_elems, self.chunk_elems)
                 for place, phase in enumerate(phases) if isinstance(phase, Across)]
        Simulation(plans, buffers, self.operation, defined).run(seed)


def _groups(waiting: Sequence[Sequence[Phase]]) -> set[tuple[int, ...]]:
    heads = [phases[0] for phases in waiting if phases]
    return {tuple(head.group.ranks or ()) for head in heads if isinstance(head, Across)}


def _meet(ranks: Sequence[int], waiting: Sequence[Sequence[Phase]]) -> bool:
    """Whether all of these ranks are at the same phase, and it is theirs together."""
    heads = [waiting[rank][0] if waiting[rank] else None for rank in ranks]
    if isinstance(heads[0], Across):
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
