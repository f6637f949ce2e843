"""What this machine's MPI is, in one line."""

from __future__ import annotations

import ctypes
from pathlib import Path


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
