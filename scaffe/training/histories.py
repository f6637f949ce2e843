"""Gather the update rule's histories, which ranks own in parts, into whole arrays for a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.nets.flat_params import Allocate
from scaffe.training.updater import Updater

MOST_BYTES = 1 << 24
"""The most bytes that one gather brings to the root, all ranks' parts together: a snapshot needs little more memory
than what it writes."""

HistoryPart = tuple[int, np.ndarray]
"""The first element, and the values from there on."""


def updater_parts(updater: Updater, index: int, with_copies: bool = False) -> list[HistoryPart]:
    """The parts of one history that an updater holds, of those included that other ranks own if ``with_copies``."""
    updater.fetch_all()
    shards = updater.everything if with_copies else updater.shards
    return [(shard.interval.start, shard.history(index)) for shard in shards]


def filled(place: slice, parts: Sequence[HistoryPart]) -> np.ndarray:
    """An interval of a flat array, (place.stop - place.start,), of parts that cover it; one at least."""
    values = np.zeros(place.stop - place.start, parts[0][1].dtype)
    for start, held in parts:
        first, last = max(start, place.start), min(start + len(held), place.stop)
        if first < last:
            values[first - place.start:last - place.start] = held[first - start:last - start]
    return values


def gather_parts(own: Sequence[Sequence[HistoryPart]], n_elems: int, dtype: np.dtype, communicator: Communicator,
                 root: int = 0, zeros: Allocate = np.zeros) -> list[np.ndarray]:
    """Whole arrays, on root, of parts that ranks hold. Called by all ranks. Returns on root the flat arrays, zero where
    no rank holds a part; elsewhere an empty list.

    Args:
        own: for each array, this rank's parts; no two ranks hold the same element.
        n_elems, dtype: of the whole arrays; they count on root alone.
    """
    found = []
    for parts in own:
        if communicator.rank == root:
            found.append(_whole(parts, n_elems, dtype, zeros))
        for start, values in _others(parts, communicator, root):
            found[-1][start:start + len(values)] = values
    return found


def _whole(own: Sequence[HistoryPart], n_elems: int, dtype: np.dtype, zeros: Allocate) -> np.ndarray:
    """Root's own parts in an array of full length. A single part that covers everything is returned uncopied."""
    if len(own) == 1 and len(own[0][1]) == n_elems:
        return own[0][1]
    whole: np.ndarray = zeros(n_elems, dtype)
    for start, values in own:
        whole[start:start + len(values)] = values
    return whole


def _others(own: Sequence[HistoryPart], communicator: Communicator, root: int) -> Iterator[HistoryPart]:
    """On root: the other ranks' parts as (first element, values), in pieces that keep within MOST_BYTES."""
    most = MOST_BYTES // communicator.n_ranks
    cuts = [] if communicator.rank == root else [
        (start + at, values[at:at + most // values.itemsize])
        for start, values in own for at in range(0, len(values), most // values.itemsize)]
    for i in range(max(communicator.allgather_objects(len(cuts)))):
        gathered = communicator.gather_objects(cuts[i] if i < len(cuts) else None, root)
        yield from (part for part in gathered or [] if part is not None)
