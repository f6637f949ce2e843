"""Does this process's MPI take device memory? Asked of the MPI, never guessed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OVERRIDE_VARIABLE = "SCAFFE_CUDA_AWARE"
MPICH_GPU_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA


def is_cuda_aware(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether messages may lie in device memory. SCAFFE_CUDA_AWARE=0|1 overrides the answer. Call it after MPI_Init."""
    given = environment.get(OVERRIDE_VARIABLE, "")
    if given in ("0", "1"):
        return given == "1"
    answers = (_open_mpi(_loaded()), _mpich(_loaded()), _info())
    return any(answer for answer in answers if answer is not None)


def reason(environment: Mapping[str, str] = os.environ) -> str:
    """The answer in words, and who gave it."""
    if environment.get(OVERRIDE_VARIABLE, "") in ("0", "1"):
        return f"{OVERRIDE_VARIABLE}={environment[OVERRIDE_VARIABLE]}"
    answers = {"MPIX_Query_cuda_support": _open_mpi(_loaded()), "MPIX_GPU_query_support": _mpich(_loaded()),
               "mpi_memory_alloc_kinds or ompi's info": _info()}
    said = [f"{who} says {'yes' if answer else 'no'}" for who, answer in answers.items() if answer is not None]
    return ", ".join(said) or "the MPI cannot be asked"


def _open_mpi(library: Any) -> bool | None:
    """Open MPI's own question, which Spectrum MPI and MVAPICH2-GDR have too; None where there is none."""
    try:
        return bool(library.MPIX_Query_cuda_support())
    except AttributeError:
        return None


def _mpich(library: Any) -> bool | None:
    """MPICH's question, which its descendants (Cray, Intel) share; None where there is none."""
    answer = ctypes.c_int(0)
    try:
        status = library.MPIX_GPU_query_support(MPICH_GPU_CUDA, ctypes.byref(answer))
    except AttributeError:
        return None
    return bool(answer.value) if status == 0 else None


def _info() -> bool | None:
    """MPI 4.1's info key for kinds of memory on the world's communicator, which says no only where it says anything."""
    from mpi4py import MPI

    info = MPI.COMM_WORLD.Get_info()
    try:
        kinds = info.get("mpi_memory_alloc_kinds")
    finally:
        info.Free()
    return None if kinds is None else "cuda" in kinds


def _loaded() -> Any:
    """The MPI library that is loaded in this process, so that its functions are those that run."""
    try:
        maps = Path("/proc/self/maps").read_text().splitlines()
        path = next(line.split(maxsplit=5)[5] for line in maps if "/libmpi" in line or "/libmpich" in line)
        return ctypes.CDLL(path)
    except (OSError, StopIteration, IndexError):
        return ctypes.CDLL(None)
