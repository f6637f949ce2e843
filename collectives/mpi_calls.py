"""The MPI library's own collectives behind our signatures: algorithm `mpi`, and the peer in every benchmark."""

from __future__ import annotations

import numpy as np

from . import partition
from .datatypes import mpi_op, mpi_type


class MpiCalls:
    """Blocking calls on one MPI communicator. Arrays are flat, contiguous and of the same length on all ranks."""

    def __init__(self, comm) -> None:
        """`comm` is an mpi4py intracommunicator that nobody else uses from another thread at the same time."""
        from mpi4py import MPI

        self._comm = comm
        self._in_place = MPI.IN_PLACE

    def run(self, collective: str, array: np.ndarray, op: str, root: int) -> None:
        """The collective of that name."""
        arguments = {"bcast": (root,), "reduce": (root, op), "allgather": ()}.get(collective, (op,))
        getattr(self, collective)(array, *arguments)

    def bcast(self, array: np.ndarray, root: int) -> None:
        """Root's array on every rank."""
        self._comm.Bcast(_spec(array), root)

    def reduce(self, array: np.ndarray, root: int, op: str) -> None:
        """The reduction over ranks in root's array; the other ranks' stay as they are."""
        op_handle = mpi_op(op, array.dtype.name)
        if self._comm.rank == root:
            self._comm.Reduce(self._in_place, _spec(array), op_handle, root)
        else:
            self._comm.Reduce(_spec(array), None, op_handle, root)

    def allreduce(self, array: np.ndarray, op: str) -> None:
        """The reduction over ranks in every rank's array."""
        self._comm.Allreduce(self._in_place, _spec(array), mpi_op(op, array.dtype.name))

    def reduce_scatter(self, array: np.ndarray, op: str) -> None:
        """Each rank's own part of `array` becomes the reduction over ranks of that part."""
        counts = self._counts(array.size)
        own = np.empty(counts[self._comm.rank], array.dtype)
        self._comm.Reduce_scatter(_spec(array), _spec(own), counts, mpi_op(op, array.dtype.name))
        array[partition.part(self._comm.rank, self._comm.size, array.size)] = own

    def allgather(self, array: np.ndarray) -> None:
        """Every rank's own part of `array` goes to all ranks."""
        counts = self._counts(array.size)
        self._comm.Allgatherv(self._in_place, [array, counts, mpi_type(array.dtype.name)])

    def _counts(self, n_elems: int) -> list[int]:
        ranks = range(self._comm.size)
        return [end - start for start, end in (partition.bounds(rank, self._comm.size, n_elems) for rank in ranks)]


def _spec(array: np.ndarray) -> list:
    return [array, array.size, mpi_type(array.dtype.name)]
