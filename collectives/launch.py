"""Was this process started by an MPI launcher? Asked of the environment, so that one rank needs no MPI at all."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TypeVar

from scaffe import start_watch
from scaffe.collectives.errors import CommError
from scaffe.collectives.leftovers import remove_left
from scaffe.collectives.loss import ulfm
from scaffe.collectives.loss.ending import ENDING

# Open MPI; MPICH, Intel MPI and `srun --mpi=pmi2`; `srun --mpi=pmix` (its rank, and SLURM's own count of tasks).
COUNT_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
RANK_VARIABLES = ("PMIX_RANK",)
# Open MPI; Intel MPI and MPICH; MVAPICH2; Cray's PALS; and last srun, whose variable a batch script has too.
NODE_RANK_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
                       "PALS_LOCAL_RANKID", "SLURM_LOCALID")
NODE_COUNT_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE")
SLURM_COUNTS, SLURM_NODE = "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"
RANKS_PER_NODE_VARIABLE = "SCAFFE_RANKS_PER_NODE"
T = TypeVar("T")
LEVELS = ("single", "funneled", "serialized", "multiple")


def launched() -> bool:
    """Whether an MPI launcher (mpirun, mpiexec, srun) started this process as one of its ranks."""
    if any(os.environ.get(name) for name in RANK_VARIABLES):
        return True
    counts = (os.environ.get(name, "") for name in COUNT_VARIABLES)
    return any(count.isdigit() for count in counts)


def node_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """This rank's number on its node, as the launcher says before MPI starts.

    Args:
        environment: the variables to look at.

    Returns:
        None where no launcher says it, or nodes are not the launcher's (SCAFFE_RANKS_PER_NODE).
    """
    if environment.get(RANKS_PER_NODE_VARIABLE):
        return None
    found = (environment.get(name, "") for name in NODE_RANK_VARIABLES)
    return next((int(number) for number in found if number.isdigit()), None)


def node_n_ranks(environment: Mapping[str, str] = os.environ) -> int | None:
    """How many ranks this rank's node has, as the launcher says before MPI starts; None where none says it.

    Args:
        environment: the variables to look at. SLURM's has the counts of all nodes, as in "8(x3),4".
    """
    found = next((int(n) for name in NODE_COUNT_VARIABLES if (n := environment.get(name, "")).isdigit()), None)
    if found is not None:
        return found
    counts: list[int] = []
    for word in filter(None, environment.get(SLURM_COUNTS, "").split(",")):
        matched = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", word)
        if matched is None:
            return None
        counts += [int(matched[1])] * int(matched[2] or 1)
    node = environment.get(SLURM_NODE, "")
    return counts[int(node)] if node.isdigit() and int(node) < len(counts) else None


def load_mpi(thread_level: str = "multiple") -> ModuleType:
    """Starts MPI, under the watch of `scaffe.start_watch`, which `all_through` ends.

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
        ends_itself = ulfm.is_asked_for() and "mpi4py.MPI" not in sys.modules
        mpi4py.rc.finalize = None if not ends_itself else False
        if ends_itself:
            os.environ.setdefault(*ulfm.COLLECTIVES)
        start_watch.begin()
        remove_left()
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise CommError(f"started as an MPI rank, but MPI cannot be loaded: {str(error).splitlines()[0]}") from error
    if ends_itself:
        ENDING.install()
    return MPI


def all_through(make: Callable[[], T]) -> T:
    """What the ranks make together first after MPI has started: from then on MPI itself says who is lost.

    Args:
        make: makes it.

    Raises:
        CommError: a rank is lost meanwhile.
    """
    try:
        made = make()
    except Exception as error:
        if "mpi4py.MPI" in sys.modules and ulfm.is_loss(error):
            raise CommError("another rank was lost while MPI was starting") from None
        raise
    start_watch.end()
    return made


def grants_threads() -> bool:
    """Whether MPI, which has been started, lets several threads call it at once: non-blocking collectives need that."""
    from mpi4py import MPI

    return bool(MPI.Query_thread() >= MPI.THREAD_MULTIPLE)


def may_use_threads() -> bool:
    """As `grants_threads`; rank 0 says what follows where it is not so."""
    from mpi4py import MPI

    if grants_threads():
        return True
    if MPI.COMM_WORLD.rank == 0:
        sys.stderr.write("collectives: MPI does not grant MPI_THREAD_MULTIPLE, which the helper thread needs: "
                         "non-blocking collectives run when they are called\n")
    return False
