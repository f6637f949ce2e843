"""Proves that the ranks of a node can read and write one another's device memory, before anything relies on it.

That a handle opens proves little: it may open other memory, or memory that the copy engines reach and kernels do not.
Copies come first, since a kernel that cannot reach an address ends its context for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.ipc.windows import DeviceWindows
from scaffe.collectives.cuda.kernels import GatherRanks, kernels
from scaffe.collectives.errors import CommError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

PART_ELEMS = 67
"""What one rank's kernel sums: whole packs of 16 bytes, and a rest."""
DTYPE = np.dtype(np.float32)
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind


def prove(windows: DeviceWindows, node_comm: Intracomm, name: str) -> None:
    """Each rank reads all ranks' numbers, then sums a part of all ranks' windows into all of them.

    Args:
        windows: of the node's ranks, all of which call it.
        node_comm: the node's ranks.
        name: of this rank, in errors.

    Raises:
        CommError: on every rank, where one cannot share, read or write a window or finds other numbers there.
    """
    n_ranks, rank = node_comm.size, node_comm.rank
    own = windows.allocate(n_ranks * PART_ELEMS, DTYPE)
    bases = windows.locate(own).bases
    _copy(own.data.ptr, np.full(own.size, rank + 1, DTYPE), HOST_TO_DEVICE)
    node_comm.Barrier()
    _agree(node_comm, name, "finds other values in shared device memory than were written there",
           lambda: np.array_equal(_first_elements(bases), np.arange(1, n_ranks + 1)))
    _agree(node_comm, name, "cannot sum", lambda: _sum_part(bases, rank))
    _agree(node_comm, name, "finds other sums in shared device memory than the ranks' kernels should have written",
           lambda: bool((_read(own.data.ptr, own.size) == n_ranks * (n_ranks + 1) // 2).all()))


def _agree(node_comm: Intracomm, name: str, otherwise: str, is_right: Callable[[], bool]) -> None:
    """All ranks learn of the first that fails, or that is not right."""
    try:
        fault = "" if is_right() else f"{name} {otherwise}"
    except Exception as error:  # CuPy's CUDARuntimeError: not known by name without CuPy
        fault = f"{name} cannot use what handles open: {error}"
    faults = [text for text in node_comm.allgather(fault) if text]
    if faults:
        raise CommError(faults[0], everywhere=True)


def _first_elements(bases: Sequence[int]) -> np.ndarray:
    return np.concatenate([_read(address, 1) for address in bases])


def _sum_part(bases: Sequence[int], rank: int) -> bool:
    """This rank's part of all windows, summed into all: by the kernel that collectives use."""
    everyone = GatherRanks(0, len(bases), 0, len(bases), -1)
    kernels().gathering(bases, rank * PART_ELEMS * DTYPE.itemsize, PART_ELEMS, DTYPE, "sum", everyone)()
    device.load().cuda.get_current_stream().synchronize()
    return True


def _read(address: int, n_elems: int) -> np.ndarray:
    found = np.zeros(n_elems, DTYPE)
    device.load().cuda.runtime.memcpy(found.ctypes.data, address, found.nbytes, DEVICE_TO_HOST)
    return found


def _copy(address: int, values: np.ndarray[Any, Any], kind: int) -> None:
    runtime = device.load().cuda.runtime
    runtime.memcpy(address, values.ctypes.data, values.nbytes, kind)
    runtime.streamSynchronize(0)  # a copy from pageable memory may return before it has arrived
