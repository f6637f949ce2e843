"""Starts MPI, and says from the environment whether a launcher started this process: one rank needs no MPI."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from scaffe import forking, start_watch
from scaffe.collectives.errors import CommError, LostWhileStarting
from scaffe.collectives.fault_tolerance import ulfm
from scaffe.collectives.fault_tolerance.finalize import FINALIZER, finalize_at_exit
from scaffe.collectives.leftovers import remove_left
from scaffe.collectives.runtime.freed_communicator import forked_child_line
from scaffe.environment import RANKS_PER_NODE
from scaffe.environment import check as check_variables

# Open MPI; MPICH, Intel MPI and `srun --mpi=pmi2`; `srun --mpi=pmix` (its rank, and SLURM's own count of tasks).
COUNT_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
RANK_VARIABLES = ("PMIX_RANK",)
# Open MPI; Intel MPI and MPICH; MVAPICH2; Cray's PALS; and last srun, whose variable a batch script has too.
NODE_RANK_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
                       "PALS_LOCAL_RANKID", "SLURM_LOCALID")
NODE_COUNT_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE")
PLACE_VARIABLES = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
                   ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))
SLURM_COUNTS, SLURM_NODE = "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"
T = TypeVar("T")
LEVELS = ("single", "funneled", "serialized", "multiple")

_forked_with_mpi: list[bool] = []  # not empty in a forked child of a process that had started MPI


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an MPI launcher (mpirun, mpiexec, srun) started this process as a rank that needs MPI.

    One task that srun starts alone, as `srun --pty` does, needs none.
    """
    if environment.get("SLURM_STEP_NUM_TASKS") != "1" or environment.get("SLURM_HET_SIZE"):
        return has_launcher(environment)
    nested = environment.get("OMPI_COMM_WORLD_SIZE") or environment.get("PMI_SIZE", "1") != "1"
    is_of_srun = not environment.get("PMIX_RANK") or environment.get("PMIX_NAMESPACE", "").startswith("slurm.")
    return bool(nested) or not is_of_srun


def has_launcher(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an MPI launcher started this process, one of many or the only one."""
    if any(environment.get(name) for name in RANK_VARIABLES):
        return True
    counts = (environment.get(name, "") for name in COUNT_VARIABLES)
    return any(count.isdigit() for count in counts)


def place(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """This rank's number and the number of ranks, as the launcher says before MPI starts; None where none says both."""
    said = ((environment.get(rank, ""), environment.get(count, "")) for rank, count in PLACE_VARIABLES)
    return next(((int(rank), int(count)) for rank, count in said if rank.isdigit() and count.isdigit()), None)


def node_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """This rank's number on its node, as the launcher says before MPI starts. Returns None where no launcher says it,
    or nodes are not the launcher's (SCAFFE_RANKS_PER_NODE)."""
    if RANKS_PER_NODE.get(environment):
        return None
    found = (environment.get(name, "") for name in NODE_RANK_VARIABLES)
    return next((int(number) for number in found if number.isdigit()), None)


def node_n_ranks(environment: Mapping[str, str] = os.environ) -> int | None:
    """How many ranks this rank's node has, as the launcher says before MPI starts; None where none says it.
    ``environment``: the variables to look at. SLURM's has the counts of all nodes, as in "8(x3),4"."""
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
    """Starts MPI, under the watch of `scaffe.start_watch`, which `while_starting` ends.

    Args:
        thread_level: what to ask for: "single", "funneled", "serialized" or "multiple"; the library may grant less.

    Returns:
        mpi4py's module MPI.

    Raises:
        CommError: mpi4py or the MPI library cannot be loaded, there is no such level, or this is a forked child.
        UserError: a variable of ours has a value that it cannot have.
    """
    check_variables()
    if thread_level not in LEVELS:
        raise CommError(f"thread level must be one of {', '.join(LEVELS)}, not {thread_level!r}")
    must_be_rank()
    try:
        import mpi4py

        mpi4py.rc.threads = thread_level != "single"
        mpi4py.rc.thread_level = thread_level
        is_first = "mpi4py.MPI" not in sys.modules
        ends_itself = ulfm.is_asked_for() and is_first
        mpi4py.rc.finalize = False if is_first else None
        if ends_itself:
            os.environ.setdefault(*ulfm.COLLECTIVES)
        start_watch.begin()
        remove_left()
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise CommError(f"started as an MPI rank, but MPI cannot be loaded: {str(error).splitlines()[0]}") from error
    if ends_itself or (is_first and not finalize_at_exit(MPI.__file__)):
        FINALIZER.install()
    return MPI


def must_be_rank() -> None:
    """Raises CommError in a forked child of a process that had started MPI, where calls of MPI would never return."""
    if _forked_with_mpi:
        raise CommError(forked_child_line())


def _look_in_child() -> None:
    mpi = getattr(sys.modules.get("mpi4py.MPI"), "Is_initialized", bool)
    _forked_with_mpi.extend([True] if mpi() else [])


forking.in_child(_look_in_child)


def end_all(code: int) -> None:
    """Ends the job on all ranks with this exit code where MPI has started; else returns.

    A rank that only exited would wait for the others in MPI_Finalize.
    """
    if "mpi4py.MPI" not in sys.modules:
        return
    from mpi4py import MPI

    if MPI.Is_initialized() and not MPI.Is_finalized() and MPI.COMM_WORLD.size > 1:
        MPI.COMM_WORLD.Abort(code)


def while_starting(make: Callable[[], T]) -> T:
    """Makes what all ranks make first after MPI has started, and ends the watch over the start.

    From then on MPI itself reports lost ranks.

    Raises:
        LostWhileStarting: a rank is lost meanwhile.
    """
    try:
        made = make()
    except Exception as error:
        if "mpi4py.MPI" in sys.modules and ulfm.is_loss(error):
            raise LostWhileStarting("another rank was lost while MPI was starting") from None
        raise
    start_watch.end()
    return made


def grants_threads() -> bool:
    """Whether MPI, which has been started, lets several threads call it at once: non-blocking collectives need that."""
    from mpi4py import MPI

    return bool(MPI.Query_thread() >= MPI.THREAD_MULTIPLE)


def may_use_threads() -> bool:
    """As `grants_threads`; where it is not so, rank 0 writes a line that says what follows from it."""
    from mpi4py import MPI

    if grants_threads():
        return True
    if MPI.COMM_WORLD.rank == 0:
        sys.stderr.write("collectives: MPI does not grant MPI_THREAD_MULTIPLE, which the helper thread needs: "
                         "non-blocking collectives run when they are called\n")
    return False


def describe_mpi() -> str:
    """Names the MPI library that mpi4py loads and says whether it takes GPU memory, or why there is none.

    MPI is not started.
    """
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return f"MPI: none ({str(error).splitlines()[0]}); one rank runs without it"
    version = " ".join(MPI.Get_library_version().split(",")[0].split())
    return f"MPI: {version}; {_gpu_memory()}"


def _gpu_memory() -> str:
    """Whether messages may lie in GPU memory, where the library can be asked (Open MPI's MPIX_Query_cuda_support)."""
    try:
        maps = Path("/proc/self/maps").read_text().splitlines()
        loaded = next(line.split()[-1] for line in maps if "/libmpi.so" in line)
        asked = ctypes.CDLL(loaded).MPIX_Query_cuda_support
    except (OSError, AttributeError, StopIteration):
        return "it cannot be asked whether it is CUDA-aware"
    return "CUDA-aware" if asked() else "not CUDA-aware (or not before it is started)"
