"""What collectives must give, worked out from all ranks' inputs with plain numpy."""

import numpy as np

OPS = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
COLLECTIVES = ("reduce", "bcast", "allreduce", "reduce_scatter", "allgather")


def inputs(n_ranks, n_elems, dtype, op):
    """Row r is rank r's buffer: small integers that differ for every rank and element where the op allows it."""
    ranks, elems = np.ogrid[:n_ranks, :n_elems]
    if op == "prod":
        return (1 + ((elems + ranks) % n_ranks == 0) + (elems * 3 % 7 == ranks)).astype(dtype)
    limit = 2048 // n_ranks if dtype == "float16" else 1_000_003
    return ((elems * 8191 + ranks * 524287 + elems * ranks) % limit).astype(dtype)


def part(rank, n_ranks, n_elems):
    """Parts in order, as equal as can be."""
    return slice(rank * n_elems // n_ranks, (rank + 1) * n_elems // n_ranks)


def expected(collective, rank, rows, op, root):
    """(slice, values): the elements of `rank`'s buffer that are defined afterwards, and what they are."""
    n_ranks, n_elems = rows.shape
    if collective == "bcast":
        return slice(None), rows[root]
    if collective == "allgather":
        parts = [rows[peer, part(peer, n_ranks, n_elems)] for peer in range(n_ranks)]
        return slice(None), np.concatenate(parts)
    reduced = OPS[op](rows.astype(np.int64 if rows.dtype.kind == "i" else np.float64), axis=0).astype(rows.dtype)
    if collective == "allreduce":
        return slice(None), reduced
    where = part(rank, n_ranks, n_elems) if collective == "reduce_scatter" else slice(0, n_elems if rank == root else 0)
    return where, reduced[where]


def arguments(collective, op, root):
    """The keyword arguments of the call."""
    given = {"root": root} if collective in ("reduce", "bcast") else {}
    return given if collective in ("bcast", "allgather") else given | {"op": op}
