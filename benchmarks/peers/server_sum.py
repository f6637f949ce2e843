"""The sum of a clock alone, for ``benchmarks/server.py``: ``server_sum.py N_BYTES N_TIMED``.

Each rank adds its part of all ranks' buffers to its part of the table, in shared memory and with the server's own
kernel, and nothing else: no message, no wait but a barrier before. What a server on this machine can come to.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scaffe.collectives.planning.datatypes import OPS  # noqa: E402
from scaffe.collectives.planning.plan import bounds  # noqa: E402
from scaffe.collectives.shared.kernels import block_for, combine_ranks  # noqa: E402

N_WARM = 2


def main():
    """Print the milliseconds of every sum, of the slowest rank."""
    n_bytes, n_timed = map(int, sys.argv[1:])
    ranks = MPI.COMM_WORLD
    is_first = ranks.rank == 0
    window = MPI.Win.Allocate_shared(n_bytes * (1 + is_first), 4, comm=ranks)
    arrays = [np.frombuffer(window.Shared_query(rank)[0], np.float32) for rank in range(ranks.size)]
    table, updates = arrays[0][n_bytes // 4:], [array[:n_bytes // 4] for array in arrays]
    updates[ranks.rank][:] = 1
    start, stop = bounds(ranks.rank, ranks.size, table.size)
    table[start:stop] = 0
    places = np.array([array.ctypes.data + 4 * start for array in (table, *updates)])
    milliseconds = []
    for _ in range(N_WARM + n_timed):
        ranks.Barrier()
        started = time.perf_counter()
        combine_ranks(places, np.arange(ranks.size + 1), np.zeros(1, np.int64), 0, stop - start,
                      block_for(table.dtype), OPS.index("sum"))
        milliseconds.append(max(ranks.allgather(1e3 * (time.perf_counter() - started))))
    if not (table[start:stop] == ranks.size * (N_WARM + n_timed)).all():
        raise SystemExit("wrong sums")
    if is_first:
        print(json.dumps({"sum alone": milliseconds[N_WARM:]}))


if __name__ == "__main__":
    main()
