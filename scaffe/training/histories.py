"""Gather the update rule's histories, which ranks own in parts, into whole arrays for a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.training.updater import Updater

MOST_BYTES = 1 << 30
"""The most bytes that one gather brings to the root, all ranks' parts together: MPI counts bytes with 32 bits."""


def gather_histories(updater: Updater, communicator: Communicator, root: int = 0) -> list[np.ndarray]:
    """The update rule's whole histories, on root. Called by all ranks.

    Args:
        updater: this rank's; no two ranks own the same element.
        communicator: the ranks that own the parts.
        root: the rank that gets the whole.

    Returns:
        on root one flat array per history, (n_elems,), of the parameters' dtype, in host memory; elsewhere an empty
        list.
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
    """Root's own parts in an array of full length. A single part that covers everything is returned uncopied."""
    n_elems = updater.params.n_elems
    if len(own) == 1 and len(own[0][1]) == n_elems:
        return own[0][1]
    whole = np.zeros(n_elems, updater.params.dtype)
    for start, values in own:
        whole[start:start + len(values)] = values
    return whole


def _others(own: list[tuple[int, np.ndarray]], communicator: Communicator, root: int
            ) -> Iterator[tuple[int, np.ndarray]]:
    """On root: the other ranks' parts as (first element, values), in pieces that keep within MOST_BYTES."""
    most = MOST_BYTES // communicator.n_ranks
    cuts = [] if communicator.rank == root else [
        (start + at, values[at:at + most // values.itemsize])
        for start, values in own for at in range(0, len(values), most // values.itemsize)]
    for i in range(max(communicator.allgather_objects(len(cuts)))):
        gathered = communicator.gather_objects(cuts[i] if i < len(cuts) else None, root)
        yield from (part for part in gathered or [] if part is not None)
