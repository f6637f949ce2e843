"""Plans a collective on several nodes as phases within nodes and across them (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from scaffe.collectives.planning import plan as partition
from scaffe.collectives.planning import planners
from scaffe.collectives.planning.algorithm import BY_NODE, Algorithm, Pattern, parse_pattern
from scaffe.collectives.planning.call import Call
from scaffe.collectives.planning.plan import Plan
from scaffe.collectives.planning.planners import BY_PARTS
from scaffe.collectives.topology import Topology

Interval = tuple[int, int]


def relocated(plan: Plan, intervals: Sequence[Interval], n_elems: int) -> Plan:
    """Moves a plan's steps to where its elements lie; a step that crosses intervals becomes one step for each.

    The plans of all ranks of a collective have to be moved with intervals of the same lengths, so that both ends of a
    message are cut alike.

    Args:
        intervals: where its elements lie, in order; they do not overlap.
        n_elems: length of the buffer that the intervals are of.
    """
    ends = list(accumulate(stop - start for start, stop in intervals))
    rows = [(end - (stop - start), end, start) for end, (start, stop) in zip(ends, intervals, strict=True)]

    def moved(start: int, stop: int) -> Iterator[Interval]:
        for first, end, place in rows:
            low, high = max(start, first), min(stop, end)
            if low < high:
                yield place + low - first, place + high - first

    steps = tuple(type(step)(step.peer, *part) for step in plan for part in moved(step.start, step.stop))
    return Plan(plan.rank, plan.n_ranks, n_elems, steps)


Part = tuple[int, int, int]
"""First element, one past the last, and the rank of the node that owns them."""
GRAIN_ELEMS = 64
"""Shares begin at multiples of this where they are long enough, so that kernels read whole packs of 16 bytes."""


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that a plan is for.

    Attributes:
        ranks: their ranks in the communicator; None for all.
        counts: elements of each one's part, where those are not as equal as can be.
        intervals: the elements of the array that the plan's buffer is made of, in order; None for all.
    """

    topology: Topology
    root: int
    ranks: Sequence[int] | None = None
    counts: tuple[int, ...] | None = None
    intervals: tuple[tuple[int, int], ...] | None = None

    def plan(self, collective: str, pattern: Pattern, place: int, array_elems: int, chunk_elems: int) -> Plan:
        """Plans what the rank at `place` of the group does on its array of `array_elems`. Raises as planners do."""
        intervals = ((0, array_elems),) if self.intervals is None else self.intervals
        n_elems = sum(stop - start for start, stop in intervals)
        plan = planners.plan(collective, pattern, place,
                             Call(self.topology, n_elems, chunk_elems, self.root, self.counts))
        return plan if self.intervals is None else relocated(plan, intervals, array_elems)


@dataclass(frozen=True, slots=True)
class IntraNodePhase:
    """A pass over the memory of a node's ranks.

    Attributes:
        collective: reduce, bcast, reduce_scatter, allgather or gather; of `parts` where those are given.
        start, stop: the elements of the buffer that it is about.
        parts: who owns which elements, counted from `start`; empty for parts as equal as can be.
    """

    collective: str
    start: int
    stop: int
    root: int = 0
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class InterNodePhase:
    """The collective itself by messages among one rank of each node."""

    group: Group


Phase = IntraNodePhase | InterNodePhase


@dataclass(frozen=True, slots=True)
class Levels:
    """A collective on several nodes. ``leaves_one_per_node``: an all-reduce whose result is left in the first rank's
    array on each node."""

    collective: str
    topology: Topology
    n_elems: int
    root: int = 0
    leaves_one_per_node: bool = False

    def phases(self, rank: int, is_split: bool) -> list[Phase]:
        """Lists what `rank` does, in order: by `S` if `is_split`, else by `M`. A node of one rank has no passes."""
        by_parts = self.collective in BY_PARTS
        if is_split:
            found = self._split_parts(rank) if by_parts else self._split(rank)
        else:
            found = self._led_parts(rank) if by_parts else self._led(rank)
        alone = len(self._node(rank)) == 1
        return [phase for phase in found if isinstance(phase, InterNodePhase) or not alone]

    def _node(self, rank: int) -> tuple[int, ...]:
        return self.topology.nodes[self.topology.node_of_rank[rank]]

    def _led(self, rank: int) -> list[Phase]:
        """Reduces to a leader of each node, goes across, broadcasts: as far as needed. Root leads its node."""
        root_node = self.topology.node_of_rank[self.root]
        leaders = tuple(self.root if node == root_node else ranks[0] for node, ranks in enumerate(self.topology.nodes))
        leader = leaders[self.topology.node_of_rank[rank]]
        node_root = self._node(rank).index(leader)
        found: list[Phase] = []
        if self.collective != "bcast":
            found.append(IntraNodePhase("reduce", 0, self.n_elems, node_root))
        if rank == leader:
            found.append(InterNodePhase(Group(Topology.flat(len(leaders)), root_node, leaders)))
        if self.collective != "reduce":
            found.append(IntraNodePhase("bcast", 0, 0 if self.leaves_one_per_node else self.n_elems, node_root))
        return found

    def _led_parts(self, rank: int) -> list[Phase]:
        """A node's ranks own one block together: its leader scatters or gathers blocks across the nodes."""
        bounds = partition.all_bounds(self.topology.n_ranks, self.n_elems)
        node = self._node(rank)
        counts = tuple(bounds[ranks[-1] + 1] - bounds[ranks[0]] for ranks in self.topology.nodes)
        first, end = bounds[node[0]], bounds[node[-1] + 1]
        parts = tuple((bounds[owner], bounds[owner + 1], place) for place, owner in enumerate(node))
        across = InterNodePhase(Group(Topology.flat(len(counts)), 0, self.topology.leaders, counts))
        before = IntraNodePhase("allgather", 0, self.n_elems, parts=parts)
        after = IntraNodePhase("bcast", 0, self.n_elems)
        if self.collective == "reduce_scatter":
            before, after = IntraNodePhase("reduce", 0, self.n_elems), IntraNodePhase("bcast", first, end)
        return [before, *([across] if rank == node[0] else []), after]

    def _n_shares(self) -> int:
        return min(map(len, self.topology.nodes))

    def _split(self, rank: int) -> list[Phase]:
        """Scatters the sum within the node, goes across with one share, gathers: as far as needed."""
        root_node, own_node = (self.topology.node_of_rank[which] for which in (self.root, rank))
        node, is_roots = self._node(rank), own_node == root_node
        parts = shares(self.n_elems, self._n_shares())
        found: list[Phase] = []
        if self.collective != "bcast":
            found.append(IntraNodePhase("reduce_scatter", 0, self.n_elems, parts=parts))
        elif is_roots:
            found.append(IntraNodePhase("bcast", 0, self.n_elems, node.index(self.root)))
        found += [InterNodePhase(Group(Topology.flat(self.topology.n_nodes), root_node, self._numbered(share), None,
                               ((start, stop),)))
                  for start, stop, share in parts if node[share] == rank]
        if self.collective == "reduce" or self.leaves_one_per_node:
            node_root = node.index(self.root) if is_roots else 0
            if is_roots or self.leaves_one_per_node:
                found.append(IntraNodePhase("gather", 0, self.n_elems, node_root, parts))
        elif self.collective == "allreduce" or not is_roots:
            found.append(IntraNodePhase("allgather", 0, self.n_elems, parts=parts))
        return found

    def _split_parts(self, rank: int) -> list[Phase]:
        """A share is the parts of the ranks of one number on all nodes; those beyond the shares join share by share."""
        bounds = partition.all_bounds(self.topology.n_ranks, self.n_elems)
        node, n_shares = self._node(rank), self._n_shares()
        owned = [(bounds[owner], bounds[owner + 1], self.topology.node_rank(owner)) for owner in
                 range(self.topology.n_ranks)]
        everyone = tuple((start, stop, place % n_shares) for start, stop, place in owned)
        beyond = [(bounds[owner], bounds[owner + 1], place) for place, owner in enumerate(node) if place >= n_shares]
        across = [self._across_parts(bounds, place) for place, owner in enumerate(node[:n_shares]) if owner == rank]
        if self.collective == "reduce_scatter":
            last = tuple((start, stop, place % n_shares) for start, stop, place in beyond)
            return [IntraNodePhase("reduce_scatter", 0, self.n_elems, parts=everyone), *across,
                    *([IntraNodePhase("allgather", 0, self.n_elems, parts=last)] if beyond else [])]
        return [*([IntraNodePhase("allgather", 0, self.n_elems, parts=tuple(beyond))] if beyond else []), *across,
                IntraNodePhase("allgather", 0, self.n_elems, parts=everyone)]

    def _across_parts(self, bounds: Sequence[int], share: int) -> InterNodePhase:
        n_shares = self._n_shares()
        owners = [ranks[share::n_shares] for ranks in self.topology.nodes]
        counts = tuple(sum(bounds[owner + 1] - bounds[owner] for owner in ranks) for ranks in owners)
        intervals = tuple((bounds[owner], bounds[owner + 1]) for ranks in owners for owner in ranks)
        return InterNodePhase(Group(Topology.flat(len(counts)), 0, self._numbered(share), counts, intervals))

    def _numbered(self, number: int) -> tuple[int, ...]:
        return tuple(ranks[number] for ranks in self.topology.nodes)


def in_node_memory(algorithm: Algorithm, topology: Topology) -> Algorithm:
    """The same hierarchy with its lowest level in memory that a node's ranks have mapped, where that level is the ranks
    of each node: `CB-node`, or `CB-8` on nodes of 8, is then `MB`. Any other algorithm is returned as it is."""
    pattern, sizes = algorithm.pattern, {len(ranks) for ranks in topology.nodes}
    if algorithm.is_shared or pattern is None or not pattern.group_ranks:
        return algorithm
    if pattern.group_ranks[0] != BY_NODE and {pattern.group_ranks[0]} != sizes:
        return algorithm
    above = "-".join([pattern.levels[1:], *(str(size or "node") for size in pattern.group_ranks[1:])])
    return replace(algorithm, is_shared=True, pattern=parse_pattern(above) if topology.n_nodes > 1 else None)


def shares(n_elems: int, n_shares: int) -> tuple[Part, ...]:
    """Cuts a buffer into nearly equal shares, of which share s belongs to rank s of each node; empty ones are left out.
    """
    grain = GRAIN_ELEMS if n_elems >= GRAIN_ELEMS * n_shares else 1
    cuts = [min(grain * cut, n_elems) for cut in partition.all_bounds(n_shares, -(-n_elems // grain))]
    return tuple((cuts[share], cuts[share + 1], share) for share in range(n_shares) if cuts[share] < cuts[share + 1])
