"""Whether this process's MPI is CUDA-aware, that is, takes device memory: asked of the MPI, never guessed."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.messages.message import wait_until
from scaffe.environment import CUDA_AWARE

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


MPICH_GPU_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA
SWITCHES = ("MV2_USE_CUDA", "MPICH_GPU_SUPPORT_ENABLED", "MPIR_CVAR_ENABLE_GPU")
"""The variables that switch device memory on or off in MVAPICH2-GDR, Cray MPICH and MPICH."""


def is_cuda_aware(environment: Mapping[str, str] = os.environ) -> bool:
    """Asks the MPI library, and the environment that configures it, whether messages may lie in device memory.

    Call it after MPI_Init. SCAFFE_CUDA_AWARE=0|1 overrides the answer.
    """
    given = CUDA_AWARE.get(environment)
    if given is not None:
        return given
    return any(_library().values()) and all((_settings(environment) | _ucx(_maps())).values())


def reason(environment: Mapping[str, str] = os.environ) -> str:
    """Says in words what `is_cuda_aware` answers and on what grounds."""
    given = CUDA_AWARE.get(environment)
    if given is not None:
        return f"{CUDA_AWARE.name}={int(given)}"
    found = _library() | _settings(environment) | _ucx(_maps())
    return ", ".join(f"{who} says {'yes' if answer else 'no'}" for who, answer in found.items()) or "it cannot be asked"


def _library() -> dict[str, bool]:
    """The MPI library's answers, by the name of the function asked; functions that it does not have are left out."""
    asked = {"MPIX_Query_cuda_support": _open_mpi(_loaded()), "MPIX_GPU_query_support": _mpich(_loaded()),
             "mpi_memory_alloc_kinds": _info()}
    return {who: answer for who, answer in asked.items() if answer is not None}


def _settings(environment: Mapping[str, str]) -> dict[str, bool]:
    """What the environment allows: the libraries' own switches, and the transports that UCX may use."""
    found = {name: environment[name] != "0" for name in SWITCHES if environment.get(name)}
    transports = environment.get("UCX_TLS", "all").split(",")
    if transports[0].startswith("^"):
        found["UCX_TLS"] = not {name.lstrip("^") for name in transports} & {"cuda", "cuda_copy"}
    elif "all" not in transports:
        found["UCX_TLS"] = any("cuda" in name for name in transports)
    return found


def _ucx(maps: str) -> dict[str, bool]:
    """What UCX itself can move, below an MPI library that answers for itself alone: it has loaded its CUDA module by
    now, or would read device memory as the host's and crash. Empty where UCX is not loaded.

    Args:
        maps: the process's mapped files, as /proc/self/maps lists them.
    """
    return {"libuct_cuda": "/libuct_cuda." in maps} if "/libucp." in maps else {}


def _open_mpi(library: Any) -> bool | None:
    """Open MPI's function, which Spectrum MPI and MVAPICH2-GDR have too; None where the library lacks it."""
    try:
        return bool(library.MPIX_Query_cuda_support())
    except AttributeError:
        return None


def _mpich(library: Any) -> bool | None:
    """MPICH's function, which Cray's and Intel's MPI have too; None where the library lacks it."""
    answer = ctypes.c_int(0)
    try:
        status = library.MPIX_GPU_query_support(MPICH_GPU_CUDA, ctypes.byref(answer))
    except AttributeError:
        return None
    return bool(answer.value) if status == 0 else None


def _info() -> bool | None:
    """MPI 4.1's list of memory kinds; None where the library has no such list."""
    from mpi4py import MPI

    info = MPI.COMM_WORLD.Get_info()
    try:
        kinds = info.get("mpi_memory_alloc_kinds")
    finally:
        info.Free()
    return None if kinds is None else "cuda" in kinds


def _loaded() -> Any:
    """The MPI library that this process has loaded, and not another that the linker may find."""
    try:
        path = next(line.split(maxsplit=5)[5] for line in _maps().splitlines() if "/libmpi" in line)
        return ctypes.CDLL(path)
    except (OSError, StopIteration, IndexError):
        return ctypes.CDLL(None)


def _maps() -> str:
    try:
        return Path("/proc/self/maps").read_text()
    except OSError:
        return ""


TAG = 80
LENGTHS = (1 << 10, 1 << 20, 32 << 20)
"""Bytes; libraries send short, middling and long messages in ways of their own: the last is the longest chunk."""
Allocate = Callable[[int], Any]
"""Gives a CuPy array of so many bytes."""
PATIENCE_SECONDS = 20.0
_kept: list[Any] = []  # memory that an MPI library may still write to, where a message did not come


def fault(comm: Intracomm, kinds: Sequence[Allocate]) -> str:
    """Sends device memory round a ring of all ranks.

    Args:
        comm: all of its ranks call it; this rank's GPU is the current one.
        kinds: what gives the kinds of memory that are to be sent: CuPy's pool, and windows that other processes have
            opened, which a library may have to register otherwise.

    Returns:
        What went wrong, the same on every rank; empty where every rank received what the one before it sent.
    """
    for n_bytes, allocate in product(LENGTHS, kinds):
        found = comm.allgather(_exchange(comm, n_bytes, allocate))
        if wrong := next((f"rank {rank} {text}" for rank, text in enumerate(found) if text), ""):
            return wrong
    return ""


def pool(n_bytes: int) -> Any:
    """Allocates from CuPy's pool; see Allocate."""
    return device.zeros(n_bytes, np.dtype(np.uint8))


def _exchange(comm: Intracomm, n_bytes: int, allocate: Allocate) -> str:
    from mpi4py import MPI

    cupy = device.load()
    try:
        sent, received = allocate(n_bytes), allocate(n_bytes)
    except Exception as error:  # CuPy's OutOfMemoryError, or a window's
        return f"has no room for messages of {n_bytes} bytes: {error}"
    sent.fill(_mark(comm.rank))
    cupy.cuda.get_current_stream().synchronize()
    requests: list[Any] = []
    _kept.append((sent, received))
    try:
        requests = [comm.Irecv(_message(received), (comm.rank - 1) % comm.size, TAG),
                    comm.Isend(_message(sent), (comm.rank + 1) % comm.size, TAG)]
        until = time.monotonic() + PATIENCE_SECONDS
        wait_until(lambda: MPI.Request.Testall(requests) or time.monotonic() > until, backs_off=True)
        if not MPI.Request.Testall(requests):
            return f"has waited {PATIENCE_SECONDS:g} s for a message of {n_bytes} bytes in device memory"
    except Exception as error:  # MPI's own
        return f"cannot send device memory: {error}"
    _kept.pop()
    found = received.get()
    is_right = bool((found == _mark((comm.rank - 1) % comm.size)).all())
    return "" if is_right else "received other values than were sent from device memory"


def _message(array: Any) -> list[Any]:
    from mpi4py import MPI

    return [MPI.buffer.fromaddress(array.data.ptr, array.nbytes), array.nbytes, MPI.BYTE]


def _mark(rank: int) -> int:
    """A byte of the rank's own, never zero."""
    return rank % 255 + 1
