"""The program of each rank of doctor's small job: ``mpirun -np 2 python -m scaffe.cli.doctor.probe``."""

from __future__ import annotations

import json
import os
import sys

import numpy as np

N_ELEMS = 1 << 16


def main() -> int:
    """Sum arrays of different values in shared memory; rank 0 prints what all ranks found, as JSON on one line."""
    from scaffe.collectives.communicator import Communicator
    from scaffe.collectives.cuda.messages.aware import is_cuda_aware, reason
    from scaffe.collectives.launch import describe_mpi, grants_threads

    ranks = Communicator.world()
    array = ranks.alloc(N_ELEMS)
    array[:] = np.arange(N_ELEMS) % 97 + ranks.rank
    ranks.allreduce(array)
    expected = (np.arange(N_ELEMS) % 97) * ranks.n_ranks + sum(range(ranks.n_ranks))
    own = {"n_cores": len(os.sched_getaffinity(0)), "is_right": bool((array == expected).all())}
    found = ranks.allgather_objects(own)
    if ranks.rank == 0:
        print(json.dumps({"n_ranks": ranks.n_ranks, "n_nodes": ranks.topology.n_nodes, "ranks": found,
                          "threads": grants_threads(), "is_aware": is_cuda_aware(), "why": reason(),
                          "is_open_mpi": "Open MPI" in describe_mpi()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
