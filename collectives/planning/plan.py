"""A plan: what one rank does in a collective, as an ordered list of sends and receives on one flat buffer.

The executor, the simulator, the counter and the cost model share these semantics:

* Steps run in the order of the plan. Messages from one rank to another are matched in the order sent, and both sides
  of a message have the same length.
* `Send` starts a message and does not wait for it. Its interval must keep its values until the message has left.
* `Recv` first waits until all of this rank's sends that overlap its interval have left, then receives into it. It may
  be posted early if no unfinished earlier step reads or writes its interval.
* `RecvReduce` receives into scratch (any number may be posted early), waits until all of this rank's sends that
  overlap its interval have left, then sets the interval to op(own, received), operands in this order.
* The collective is complete on a rank when all its steps have run and all its sends have left.

Intervals are counted in elements, are never empty and lie in [0, n_elems); a rank never sends to itself. A collective
of no elements, or on one rank, has no steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scaffe.collectives.errors import CommError


@dataclass(frozen=True, slots=True)
class Send:
    """Send elements [start, stop) to rank `peer`."""

    peer: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Recv:
    """Overwrite elements [start, stop) with the next message from rank `peer`."""

    peer: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class RecvReduce:
    """Replace elements [start, stop) by op(own, received) with the next message from rank `peer`."""

    peer: int
    start: int
    stop: int


Step = Send | Recv | RecvReduce


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of rank `rank` of `n_ranks` on a flat buffer of `n_elems` elements."""

    rank: int
    n_ranks: int
    n_elems: int
    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def scratch_elems(self) -> int:
        """Elements that one scratch slot needs: the length of the longest RecvReduce; 0 if there is none."""
        return max((step.stop - step.start for step in self.steps if isinstance(step, RecvReduce)), default=0)

    def validate(self) -> None:
        """Raise CommError, naming the step, if a peer or an interval is not valid."""
        if not 0 <= self.rank < self.n_ranks or self.n_elems < 0:
            raise CommError(f"plan: rank {self.rank} of {self.n_ranks} ranks with {self.n_elems} elements cannot be")
        for index, step in enumerate(self.steps):
            if not 0 <= step.peer < self.n_ranks or step.peer == self.rank:
                raise CommError(f"plan of rank {self.rank}, step {index}: {step} needs another rank below "
                                f"{self.n_ranks} as peer")
            if not 0 <= step.start < step.stop <= self.n_elems:
                raise CommError(f"plan of rank {self.rank}, step {index}: {step} needs "
                                f"0 <= start < stop <= {self.n_elems}")


def chunks(start: int, stop: int, chunk_elems: int) -> Iterator[tuple[int, int]]:
    """Cut [start, stop) into intervals of `chunk_elems` elements, of which the last may be shorter.

    Raises:
        CommError: `chunk_elems` is below 1.
    """
    if chunk_elems < 1:
        raise CommError(f"a chunk needs at least 1 element, not {chunk_elems}")
    for first in range(start, stop, chunk_elems):
        yield first, min(first + chunk_elems, stop)
