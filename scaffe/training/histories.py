"""The update rule's histories between the ranks that own parts of them and a snapshot, which has them whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.training.updater import Updater

MOST_BYTES = 1 << 30
"""Of one message to rank 0, all ranks' parts counted: MPI counts bytes with 32 bits."""


def gather_histories(updater: Updater, communicator: Communicator, root: int = 0) -> list[np.ndarray]:
    """The rule's histories as a whole, on root. Called by all ranks.

    Args:
        updater: of this rank, whose intervals no other rank owns.
        communicator: of the ranks that share the parameters out.
        root: the rank that gets them.

    Returns:
        one flat array a history, (n_elems,) like the parameters and in the host's memory; nothing on other ranks.
    """
    found = []
    for index in range(updater.rule.n_histories):
        own = [(shard.interval.start, shard.history(index)) for shard in updater.shards]
        if communicator.rank == root:
            found.append(_whole(own, updater))
        for start, values in _others(own, communicator, root):
            found[-1][start:start + len(values)] = values
    return found


def _whole(own: list[tuple[int, np.ndarray]], updater: Updater) -> np.ndarray:
    """Root's parts in their places: the one part itself where it is all there is."""
    n_elems = updater.params.n_elems
    if len(own) == 1 and len(own[0][1]) == n_elems:
        return own[0][1]
    whole = np.zeros(n_elems, updater.params.dtype)
    for start, values in own:
        whole[start:start + len(values)] = values
    return whole


def _others(own: list[tuple[int, np.ndarray]], communicator: Communicator, root: int
            ) -> Iterator[tuple[int, np.ndarray]]:
    """The other ranks' parts, on root, as (first element, values)."""
    most = MOST_BYTES // communicator.n_ranks
    cuts = [] if communicator.rank == root else [
        (start + at, values[at:at + most // values.itemsize])
        for start, values in own for at in range(0, len(values), most // values.itemsize)]
    for i in range(max(communicator.allgather_objects(len(cuts)))):
        gathered = communicator.gather_objects(cuts[i] if i < len(cuts) else None, root)
        yield from (part for part in gathered or [] if part is not None)
