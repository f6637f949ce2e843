"""What a collective does on shared memory, as tables (pure): which ranks are read and written, in which chunks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scaffe.collectives.planning.plan import bounds

Part = tuple[int, int, int]
"""First element, one past the last, and the rank that owns them."""
BY_PARTS = ("reduce_scatter", "allgather", "gather")
DOUBLED = "_doubled"
"""At the end of a reduction's name: each result goes to the rank after its own too."""
CHUNK_BYTES = 512 << 10
CHUNKS_PER_RANK = 4
LEAST_CHUNK_BYTES = 8 << 10


@dataclass(frozen=True)
class Segment:
    """Elements [start, end) of every rank's buffer: the ranks that are read, in order, and those that are written.

    With more than one source their values are reduced.
    """

    start: int
    end: int
    sources: tuple[int, ...]
    targets: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Tables:
    """One pass, as `passes.run_pass` takes it.

    Attributes:
        chunks: int64, rows (first element, one past the last, segment).
        sources: int64, a row per segment: a count, then the ranks that are read.
        targets: int64, a row per segment: a count, then the ranks that are written.
        reads: per rank, the intervals of its buffer that the pass reads.
        writes: per rank, the intervals of its buffer that the pass writes.
    """

    chunks: np.ndarray
    sources: np.ndarray
    targets: np.ndarray
    reads: tuple[tuple[tuple[int, int], ...], ...]
    writes: tuple[tuple[tuple[int, int], ...], ...]


def tables(collective: str, n_ranks: int, n_elems: int, root: int, item_bytes: int, start: int, end: int,
           parts: tuple[Part, ...] = ()) -> Tables:
    """Plans the pass over a part of a collective's elements."""
    cut = clipped(segments(collective, n_ranks, n_elems, root, parts), start, end)
    return Tables(
        chunks(cut, chunk_elems(end - start, n_ranks, item_bytes)),
        rank_table([part.sources for part in cut], n_ranks),
        rank_table([part.targets for part in cut], n_ranks),
        tuple(tuple((p.start, p.end) for p in cut if rank in p.sources) for rank in range(n_ranks)),
        tuple(tuple((p.start, p.end) for p in cut if rank in p.targets) for rank in range(n_ranks)),
    )


def segments(collective: str, n_ranks: int, n_elems: int, root: int = 0,
             parts: tuple[Part, ...] = ()) -> list[Segment]:
    """Splits a collective into segments with the same sources and targets.

    Args:
        collective: its name: one of all ranks' collectives, gather, which copies every part to the root, or reduce or
            reduce_scatter with DOUBLED at its end.
        parts: of reduce_scatter, allgather and gather: who owns which elements; none for parts in the ranks' order, as
            equal as can be. Elements that nobody owns are left as they are.

    Raises:
        ValueError: on an unknown collective.
    """
    everyone = tuple(range(n_ranks))
    if collective.endswith(DOUBLED):
        once = segments(collective.removesuffix(DOUBLED), n_ranks, n_elems, root, parts)
        return [replace(part, targets=_with_next(part.targets, n_ranks)) for part in once]
    if collective == "reduce":
        return [Segment(0, n_elems, everyone, (root,))]
    if collective == "allreduce":
        return [Segment(0, n_elems, everyone, everyone)]
    if collective == "bcast":
        return [Segment(0, n_elems, (root,), _without(everyone, root))]
    owned = parts or tuple((*bounds(rank, n_ranks, n_elems), rank) for rank in everyone)
    if collective == "reduce_scatter":
        return [Segment(start, end, everyone, (owner,)) for start, end, owner in owned]
    if collective == "allgather":
        return [Segment(start, end, (owner,), _without(everyone, owner)) for start, end, owner in owned]
    if collective == "gather":
        return [Segment(start, end, (owner,), (root,)) for start, end, owner in owned if owner != root]
    raise ValueError(f"no such collective: {collective!r}")


def chunk_elems(n_elems: int, n_ranks: int, item_bytes: int) -> int:
    """Chooses how many elements a rank takes at a time.

    Small enough to balance the ranks' work, large enough that taking a chunk (an atomic add) costs little beside it.
    """
    share = n_elems * item_bytes // (n_ranks * CHUNKS_PER_RANK)
    return max(min(share, CHUNK_BYTES), LEAST_CHUNK_BYTES) // item_bytes


def chunks(parts: list[Segment], length: int) -> np.ndarray:
    """Cuts segments into rows (start, end, index of the segment), int64, of at most `length` elements, in order."""
    rows = [
        (start, min(start + length, part.end), index)
        for index, part in enumerate(parts)
        for start in range(part.start, part.end, length)
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def rank_table(lists: list[tuple[int, ...]], n_ranks: int) -> np.ndarray:
    """Packs lists of ranks, int64, shape (len(lists), n_ranks + 1): row i is the length of lists[i], then its ranks."""
    table = np.zeros((len(lists), n_ranks + 1), np.int64)
    for row, ranks in zip(table, lists, strict=True):
        row[0] = len(ranks)
        row[1 : 1 + len(ranks)] = ranks
    return table


def clipped(parts: list[Segment], start: int, end: int) -> list[Segment]:
    """Clips segments to elements [start, end), and drops those outside."""
    cut = [Segment(max(p.start, start), min(p.end, end), p.sources, p.targets) for p in parts]
    return [part for part in cut if part.start < part.end]


def _with_next(ranks: tuple[int, ...], n_ranks: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*ranks, *((rank + 1) % n_ranks for rank in ranks))))


def _without(ranks: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(other for other in ranks if other != rank)
