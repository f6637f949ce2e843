"""A collective call as planners see it, what planners say of themselves, and what an algorithm costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import plan
from scaffe.collectives.planning.plan import Step
from scaffe.collectives.topology import Topology


@dataclass(frozen=True, slots=True)
class Call:
    """A collective on a flat buffer of `n_elems` on every rank of `topology`, in messages of at most `chunk_elems`.

    Attributes:
        root: the rank where reduce ends and bcast starts.
        counts: for reduce_scatter and allgather, the elements of each rank's part in rank order; None for parts that
            differ by at most one element.
    """

    topology: Topology
    n_elems: int
    chunk_elems: int
    root: int = 0
    counts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Raises CommError if a length, the root or the counts are not valid."""
        if self.n_elems < 0 or self.chunk_elems < 1:
            raise CommError(f"a call needs n_elems >= 0 and chunk_elems >= 1, not {self.n_elems} and "
                            f"{self.chunk_elems}")
        if not 0 <= self.root < self.n_ranks:
            raise CommError(f"root must be a rank below {self.n_ranks}, not {self.root}")
        counts = self.counts
        if counts is not None and (len(counts) != self.n_ranks or min(counts) < 0 or sum(counts) != self.n_elems):
            raise CommError(f"counts must be {self.n_ranks} numbers that sum to {self.n_elems}, not {counts}")

    @property
    def n_ranks(self) -> int:
        """How many ranks take part."""
        return self.topology.n_ranks

    def bounds(self) -> list[int]:
        """n_ranks + 1 ascending offsets: part r is [bounds[r], bounds[r + 1])."""
        if self.counts is not None:
            return [0, *accumulate(self.counts)]
        return plan.all_bounds(self.n_ranks, self.n_elems)

    def part(self, rank: int) -> tuple[int, int]:
        """The interval that `rank` owns."""
        if self.counts is None:
            return plan.bounds(rank, self.n_ranks, self.n_elems)
        start = sum(self.counts[:rank])
        return start, start + self.counts[rank]


@dataclass(frozen=True, slots=True)
class Cost:
    """What an algorithm costs when the buffer is not cut into chunks.

    Attributes:
        rounds: length of the longest chain of messages in which each waits for the one before.
        sent, received: what the busiest sender sends and the busiest receiver receives, in multiples of n_elems.
    """

    rounds: int
    sent: float
    received: float


@dataclass(frozen=True, slots=True)
class Planner:
    """An algorithm for one collective; `planner` makes it.

    Attributes:
        plan: gives the steps of a rank, from the rank and a Call; of shape `tree` from the tree (`trees.Tree`) too.
        collective: what it does: "reduce", "bcast", "allreduce", "reduce_scatter" or "allgather".
        shape: how it does it. With `tree`, names are compositions such as CB-8.
        cost: gives the busiest rank's cost from the number of ranks, for trees from the tree. A test checks it.
        names: what callers call the shape, the short name first; the shape itself is a name too.
        sum_depends_on: for reductions, what an element's rounding depends on beside the ranks and the root: "position"
            in the buffer, length of "chunks".
        cost_chunks: how many chunks `cost` is stated for.
    """

    plan: Callable[..., list[Step]]
    collective: str
    shape: str
    cost: Callable[..., Cost]
    names: tuple[str, ...] = ()
    sum_depends_on: tuple[str, ...] = ()
    cost_chunks: int = 1


def planner(collective: str, shape: str, cost: Callable[..., Cost], names: tuple[str, ...] = (),
            sum_depends_on: tuple[str, ...] = (),
            cost_chunks: int = 1) -> Callable[[Callable[..., list[Step]]], Planner]:
    """Decorates a function that plans a rank's steps, in a file in `algorithms/`; arguments as Planner has them."""
    return lambda plan: Planner(plan, collective, shape, cost, names, sum_depends_on, cost_chunks)
