"""Was this process started by an MPI launcher? Asked of the environment, so that one rank needs no MPI at all."""

from __future__ import annotations

import os
from types import ModuleType

from scaffe.collectives.errors import CommError

# Open MPI; MPICH, Intel MPI and `srun --mpi=pmi2`; `srun --mpi=pmix` (its rank, and SLURM's own count of tasks).
COUNT_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
RANK_VARIABLES = ("PMIX_RANK",)
LEVELS = ("single", "funneled", "serialized", "multiple")


def launched() -> bool:
    """Whether an MPI launcher (mpirun, mpiexec, srun) started this process as one of its ranks."""
    if any(os.environ.get(name) for name in RANK_VARIABLES):
        return True
    counts = (os.environ.get(name, "") for name in COUNT_VARIABLES)
    return any(count.isdigit() for count in counts)


def load_mpi(thread_level: str = "multiple") -> ModuleType:
    """Starts MPI.

    Args:
        thread_level: what to ask for: "single", "funneled", "serialized" or "multiple"; the library may grant less.

    Returns:
        mpi4py's module MPI.

    Raises:
        CommError: mpi4py or the MPI library cannot be loaded, or there is no such level.
    """
    if thread_level not in LEVELS:
        raise CommError(f"thread level must be one of {', '.join(LEVELS)}, not {thread_level!r}")
    try:
        import mpi4py

        mpi4py.rc.threads = thread_level != "single"
        mpi4py.rc.thread_level = thread_level
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise CommError(f"started as an MPI rank, but MPI cannot be loaded: {str(error).splitlines()[0]}") from error
    return MPI
