"""cupy.cuda.nccl over MPI: what its calls mean, in the order of the stream that they are given, for the ranks of a job.

As NCCL it takes addresses, counts and its own numbers for types and operations; unlike it, a call returns when it is
done. ``install`` puts it into the pretend module.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from tests.pretend.queue import CudaError, stream_at

UNIQUE_ID_BYTES = 128
TYPES = {"INT32": (2, np.int32), "INT64": (4, np.int64), "FLOAT16": (6, np.float16), "FLOAT32": (7, np.float32),
         "FLOAT64": (8, np.float64), "BFLOAT16": (9, ml_dtypes.bfloat16)}
OPS = {"SUM": (0, np.add), "PROD": (1, np.multiply), "MAX": (2, np.maximum), "MIN": (3, np.minimum)}
DTYPES = {number: np.dtype(dtype) for number, dtype in TYPES.values()}
UFUNCS = dict(OPS.values())


made: list[str] = []
"""The threads that have made communicators, one for each."""
queued_by: set[str] = set()
"""The threads that have queued calls."""


def get_unique_id() -> bytes:
    """What all ranks of a communicator must come with."""
    return np.random.default_rng().bytes(UNIQUE_ID_BYTES)


def group_start() -> None:
    """Calls until ``groupEnd`` are one."""


class NcclCommunicator:
    """Ranks that came with the same id."""

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        from mpi4py import MPI

        if len(commId) != UNIQUE_ID_BYTES:
            raise ValueError(f"commId length {len(commId)} != {UNIQUE_ID_BYTES}.")
        made.append(threading.current_thread().name)
        self._comm = MPI.COMM_WORLD.Dup()
        if (self._comm.size, self._comm.rank) != (ndev, rank) or len(set(self._comm.allgather(commId))) > 1:
            raise CudaError("NCCL_ERROR_INVALID_USAGE: invalid usage")

    def reduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int) -> None:
        """The reduction of all ranks' buffers in root's."""
        rows = self._rows(sendbuf, count, datatype, stream)
        if self._comm.rank == root:
            _array(recvbuf, count, datatype)[:] = UFUNCS[op].reduce(rows)

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:
        """The reduction of all ranks' buffers in all."""
        rows = self._rows(sendbuf, count, datatype, stream)
        _array(recvbuf, count, datatype)[:] = UFUNCS[op].reduce(rows)

    def broadcast(self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int) -> None:
        """Root's buffer in all."""
        _array(recvbuff, count, datatype)[:] = self._rows(sendbuff, count, datatype, stream)[root]

    def reduceScatter(self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int) -> None:
        """The reduction of all ranks' buffers, each rank its part of it."""
        rows = self._rows(sendbuf, recvcount * self._comm.size, datatype, stream)
        part = slice(self._comm.rank * recvcount, (self._comm.rank + 1) * recvcount)
        _array(recvbuf, recvcount, datatype)[:] = UFUNCS[op].reduce(rows[:, part])

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        """All ranks' buffers, one behind another, in all."""
        rows = self._rows(sendbuf, count, datatype, stream)
        _array(recvbuf, count * self._comm.size, datatype)[:] = rows.reshape(-1)

    def check_async_error(self) -> None:
        """Nothing fails here but at once."""

    def destroy(self) -> None:
        """All ranks have done with it."""

    abort = destroy

    def _rows(self, address: int, count: int, datatype: int, stream: int) -> np.ndarray:
        queued_by.add(threading.current_thread().name)
        stream_at(stream).drain()
        return np.array(self._comm.allgather(_array(address, count, datatype).copy()), DTYPES[datatype])


def _array(address: int, count: int, datatype: int) -> np.ndarray:
    dtype = DTYPES[datatype]
    return np.frombuffer((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address), dtype)


def install() -> None:
    """Be ``cupy.cuda.nccl`` of the pretend module that is ``cupy`` now."""
    module = ModuleType("cupy.cuda.nccl")
    module.__dict__.update({"available": True, "get_unique_id": get_unique_id, "NcclCommunicator": NcclCommunicator,
                            "groupStart": group_start, "groupEnd": group_start})
    module.__dict__.update({f"NCCL_{name}": number for name, (number, _) in (TYPES | OPS).items()})
    sys.modules["cupy.cuda.nccl"] = module
    sys.modules["cupy.cuda"].nccl = module  # type: ignore[attr-defined]
