"""Which part of a flat buffer belongs to which rank: the one rule of reduce_scatter, allgather and shared sums."""


def bounds(part: int, n_parts: int, n_elems: int) -> tuple[int, int]:
    """Part `part` as [start, stop): the parts are in order, cover [0, n_elems) and differ by at most one element."""
    return part * n_elems // n_parts, (part + 1) * n_elems // n_parts


def part(rank: int, n_ranks: int, n_elems: int) -> slice:
    """The slice of a flat buffer of `n_elems` that rank `rank` of `n_ranks` owns."""
    return slice(*bounds(rank, n_ranks, n_elems))


def all_bounds(n_parts: int, n_elems: int) -> list[int]:
    """n_parts + 1 ascending offsets: part r is [offsets[r], offsets[r + 1])."""
    return [bounds(part, n_parts, n_elems)[0] for part in range(n_parts)] + [n_elems]
