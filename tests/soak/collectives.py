"""Random collective calls on all ranks, each checked against NumPy: python -m tests.soak.collectives SEED N_CALLS."""

from __future__ import annotations

import random
import sys

import numpy as np

from scaffe.collectives.communicator import Communicator
from tests.collectives.mpi import reference

NAMES = ("auto", "mpi", "M", "MC", "MB", "MR", "B", "C", "R", "H", "D", "P", "CB-2", "CC-2", "CCB-2-2")
DTYPES = ("float32", "float64", "float16", "int32", "int64")
LENGTHS = (0, 1, 2, 13, 127, 1009, 4099, 65537)


def main() -> int:
    """Returns 1 where a result is wrong."""
    seed, n_calls = map(int, sys.argv[1:3])
    communicator, chance = Communicator.world(), random.Random(seed)
    n_done = 0
    while n_done < n_calls:
        collective, name = chance.choice(list(reference.COLLECTIVES)), chance.choice(NAMES)
        dtype, op, n_elems = chance.choice(DTYPES), chance.choice(list(reference.OPS)), chance.choice(LENGTHS)
        root = chance.randrange(communicator.n_ranks) if collective in ("reduce", "bcast") else 0
        form, own = chance.choice(("", "i")), chance.random() < 0.5
        n_chunks = chance.randint(0, 100)  # thousands of messages a call take seconds to set up
        chunk_bytes = 8 * (n_elems // n_chunks + 1) if n_chunks else 0
        if not communicator.algorithms.can(collective, name):
            continue
        rows = reference.inputs(communicator.n_ranks, n_elems, dtype, op)
        array = communicator.alloc(n_elems, rows.dtype) if own else np.empty(n_elems, rows.dtype)
        array[:] = rows[communicator.rank]
        how = reference.arguments(collective, op, root) | {"algorithm": name, "chunk_bytes": chunk_bytes}
        request = getattr(communicator, form + collective)(array, **how)
        if request is not None:
            request.wait(60)
        where, right = reference.expected(collective, communicator.rank, rows, op, root)
        if not np.array_equal(array[where], right):
            sys.stderr.write(f"call {n_done}: {collective} {name} {dtype} {op} {n_elems} root {root} {chunk_bytes} "
                             f"{form or '-'} {own}: wrong on rank {communicator.rank}\n")
            communicator.abort(1)
        n_done += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
