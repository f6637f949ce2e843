"""MPI one-sided for ``benchmarks/server.py``: under mpirun, ``server_rma.py N_BYTES N_TIMED``; needs mpi4py only.

Every rank holds a shard in a window. In a clock each rank accumulates its update of everything into all shards, and
gets everything: in two fence epochs, and with passive targets, flushes and barriers.
"""

import json
import sys
import time
from itertools import pairwise

import numpy as np
from mpi4py import MPI

N_WARM = 2


class Shards:
    """The window of a rank, and its update and copy of the whole."""

    def __init__(self, n_elems):
        self.comm = MPI.COMM_WORLD
        n_ranks = self.comm.size
        self.starts = [n_elems * rank // n_ranks for rank in range(n_ranks + 1)]
        mine = self.starts[self.comm.rank + 1] - self.starts[self.comm.rank]
        self.win = MPI.Win.Allocate(4 * mine, 4, comm=self.comm)
        np.frombuffer(self.win.tomemory(), np.float32)[:] = 0
        self.update = np.full(n_elems, self.comm.rank + 1, np.float32)
        self.copy = np.zeros(n_elems, np.float32)
        self.comm.Barrier()

    def each(self, call, array, *arguments):
        """Call with every shard's part of an array."""
        for rank, (start, stop) in enumerate(pairwise(self.starts)):
            call([array[start:stop], MPI.FLOAT], rank, None, *arguments)

    def fence(self):
        """A clock in two epochs of all ranks."""
        self.win.Fence()
        self.each(self.win.Accumulate, self.update, MPI.SUM)
        self.win.Fence()
        self.each(self.win.Get, self.copy)
        self.win.Fence()

    def passive(self):
        """A clock with passive targets."""
        self.win.Lock_all()
        self.each(self.win.Accumulate, self.update, MPI.SUM)
        self.win.Flush_all()
        self.comm.Barrier()
        self.each(self.win.Get, self.copy)
        self.win.Flush_all()
        self.win.Unlock_all()
        self.comm.Barrier()


def main(n_bytes, n_timed):
    """Check every element, time, and print the slowest rank's milliseconds of each way."""
    shards = Shards(n_bytes // 4)
    sums, found = sum(range(1, shards.comm.size + 1)), {}
    n_clocks = 0
    for way in ("fence", "passive"):
        seconds = []
        for index in range(-N_WARM, n_timed):
            shards.comm.Barrier()
            start = time.perf_counter()
            getattr(shards, way)()
            took = time.perf_counter() - start
            n_clocks += 1
            if index < 0 and not (shards.copy == n_clocks * sums).all():
                raise SystemExit(f"{way}: wrong elements on rank {shards.comm.rank}")
            seconds += [took] * (index >= 0)
        found[way] = (np.max(shards.comm.allgather(seconds), axis=0) * 1e3).tolist()
    if shards.comm.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
