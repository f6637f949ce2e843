"""The collectives that `bench` measures: whether they take a root or reduce, and what ranks must have afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from scaffe.collectives.communicator import Communicator

Row = tuple[int, int, int | None]
"""Elements [start, stop) must be the values of a rank, or with None the sum over ranks."""


class Case(NamedTuple):
    """One collective.

    Attributes:
        expected: gives the rows for this rank, from the communicator, the elements of the whole buffer and the root;
            elements in no row may be anything.
        takes_root: whether it has a root.
        reduces: whether it sums over ranks.
    """

    expected: Callable[[Communicator, int, int], list[Row]]
    takes_root: bool
    reduces: bool


def _allgather(communicator: Communicator, n_elems: int, root: int) -> list[Row]:
    parts = [(communicator.part(n_elems, rank), rank) for rank in range(communicator.n_ranks)]
    return [(part.start, part.stop, rank) for part, rank in parts]


def _reduce_scatter(communicator: Communicator, n_elems: int, root: int) -> list[Row]:
    part = communicator.part(n_elems)
    return [(part.start, part.stop, None)]


CASES = {
    "allgather": Case(_allgather, takes_root=False, reduces=False),
    "allreduce": Case(lambda communicator, n_elems, root: [(0, n_elems, None)], takes_root=False, reduces=True),
    "bcast": Case(lambda communicator, n_elems, root: [(0, n_elems, root)], takes_root=True, reduces=False),
    "reduce": Case(lambda communicator, n_elems, root: [(0, n_elems, None)] if communicator.rank == root else [],
                   takes_root=True, reduces=True),
    "reduce_scatter": Case(_reduce_scatter, takes_root=False, reduces=True),
}
"""By name. The message size of those by parts is that of the whole buffer."""
