"""The MPI library's own collectives behind our signatures: algorithm `mpi`, and the peer in every benchmark."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.planning import plan
from scaffe.collectives.planning.datatypes import NAMES, mpi_op, mpi_type
from scaffe.collectives.transport.host_memory import private_empty

COPIED_BYTES = 256 << 10
"""From here on a reduction in place goes through a copy of root's values: Open MPI's MPI_IN_PLACE there is slower."""


class MpiCalls:
    """Blocking calls on one MPI communicator. Arrays are flat, contiguous and of the same length on all ranks.

    Attributes:
        fault: see backend.Calls; every MPI has these calls.
    """

    fault = ""

    def __init__(self, comm: Any) -> None:
        """Args:
            comm: mpi4py intracommunicator that nobody else uses from another thread at the same time.
        """
        from mpi4py import MPI

        self._comm = comm
        self._in_place = MPI.IN_PLACE
        self._kept = np.empty(0, np.uint8)

    def run(self, collective: str, source: np.ndarray, array: np.ndarray, op: str, root: int) -> None:
        """Runs the collective of that name from `source` into `array`, which may be the same."""
        if collective in ("bcast", "allgather"):
            getattr(self, collective)(array, root)
        else:
            getattr(self, collective)(source, array, op, root)

    def bcast(self, array: np.ndarray, root: int) -> None:
        """Copies root's array to every rank."""
        self._comm.Bcast(_spec(array), root)

    def reduce(self, source: np.ndarray, array: np.ndarray, op: str, root: int) -> None:
        """Reduces `source` over ranks into root's array; the other ranks' stay as they are."""
        op_handle = mpi_op(op, NAMES[array.dtype])
        if self._comm.rank != root:
            self._comm.Reduce(_spec(source), None, op_handle, root)
        elif array.nbytes < COPIED_BYTES or source is not array:
            self._comm.Reduce(self._given(source, array), _spec(array), op_handle, root)
        else:
            self._comm.Reduce(_spec(self._copy(source)), _spec(array), op_handle, root)

    def allreduce(self, source: np.ndarray, array: np.ndarray, op: str, root: int = 0) -> None:
        """Reduces `source` over ranks into every rank's array."""
        self._comm.Allreduce(self._given(source, array), _spec(array), mpi_op(op, NAMES[array.dtype]))

    def reduce_scatter(self, source: np.ndarray, array: np.ndarray, op: str, root: int = 0) -> None:
        """Reduces each rank's own part of `source` over ranks into that part of its `array`."""
        counts = self._counts(array.size)
        part = plan.part(self._comm.rank, self._comm.size, array.size)
        own = array[part] if source is not array else self._copy(array[part])
        self._comm.Reduce_scatter(_spec(source), _spec(own), counts, mpi_op(op, NAMES[array.dtype]))
        if source is array:
            array[part] = own

    def allgather(self, array: np.ndarray, root: int = 0) -> None:
        """Copies every rank's own part of `array` to all ranks."""
        counts = self._counts(array.size)
        self._comm.Allgatherv(self._in_place, [array, counts, mpi_type(NAMES[array.dtype])])

    def _given(self, source: np.ndarray, array: np.ndarray) -> Any:
        return self._in_place if source is array else _spec(source)

    def _copy(self, array: np.ndarray) -> np.ndarray:
        """The array's values in memory that is kept from call to call."""
        if self._kept.nbytes < array.nbytes:
            self._kept = private_empty(array.nbytes, np.uint8)
        copy = self._kept[: array.nbytes].view(array.dtype)
        copy[:] = array
        return copy

    def _counts(self, n_elems: int) -> list[int]:
        ranks = range(self._comm.size)
        return [end - start for start, end in (plan.bounds(rank, self._comm.size, n_elems) for rank in ranks)]


def _spec(array: np.ndarray) -> list[Any]:
    return [array, array.size, mpi_type(NAMES[array.dtype])]
