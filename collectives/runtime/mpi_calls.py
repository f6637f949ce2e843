"""MPI's own collectives: on arrays (algorithm `mpi`, and the peer in every benchmark), and on objects."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import plan
from scaffe.collectives.planning.datatypes import NAMES, mpi_op, mpi_type
from scaffe.collectives.runtime.arguments import existing_rank
from scaffe.collectives.runtime.backend import Call
from scaffe.collectives.runtime.mismatch import require_alike
from scaffe.collectives.transport.host_memory import private_empty

COPIED_BYTES = 256 << 10
"""From here on a reduction in place goes through a copy of root's values: Open MPI's MPI_IN_PLACE there is slower."""


class MpiCalls:
    """Blocking calls on one MPI communicator (see backend.Calls): from `source` into `array`, flat and contiguous."""

    fault = ""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self._comm = comm
        self._in_place = MPI.IN_PLACE
        self._kept = np.empty(0, np.uint8)

    def of(self, collective: str) -> Call:
        call: Call = getattr(self, collective)
        return call

    def bcast(self, source: np.ndarray, array: np.ndarray, op: str, root: int) -> None:
        self._comm.Bcast(_spec(array), root)

    def reduce(self, source: np.ndarray, array: np.ndarray, op: str, root: int) -> None:
        """Reduces `source` over ranks into root's array; the other ranks' stay as they are."""
        op_handle = mpi_op(op, NAMES[array.dtype])
        if self._comm.rank != root:
            self._comm.Reduce(_spec(source), None, op_handle, root)
        elif array.nbytes < COPIED_BYTES or source is not array:
            self._comm.Reduce(self._in_place if source is array else _spec(source), _spec(array), op_handle, root)
        else:
            self._comm.Reduce(_spec(self._copy(source)), _spec(array), op_handle, root)

    def allreduce(self, source: np.ndarray, array: np.ndarray, op: str, root: int) -> None:
        given = self._in_place if source is array else _spec(source)
        self._comm.Allreduce(given, _spec(array), mpi_op(op, NAMES[array.dtype]))

    def reduce_scatter(self, source: np.ndarray, array: np.ndarray, op: str, root: int) -> None:
        counts = self._counts(array.size)
        part = plan.part(self._comm.rank, self._comm.size, array.size)
        own = array[part] if source is not array else self._copy(array[part])
        self._comm.Reduce_scatter(_spec(source), _spec(own), counts, mpi_op(op, NAMES[array.dtype]))
        if source is array:
            array[part] = own

    def allgather(self, source: np.ndarray, array: np.ndarray, op: str, root: int) -> None:
        counts = self._counts(array.size)
        self._comm.Allgatherv(self._in_place, [array, counts, mpi_type(NAMES[array.dtype])])

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


def exchange(comm: Any, text: str, call: str, value: Any, root: Any) -> Any:
    """Makes a "bcast", "gather" or "allgather" of objects, which mpi4py would make; all ranks of `comm` do.

    The ranks first exchange their calls and faults. Without that, ranks would wait for one that had failed, and MPI
    could match a message of one call with another call.

    Args:
        text: the call in words, as every rank must have it.

    Raises:
        CommError: the same on every rank, where calls differ, there is no such root, or an object cannot be pickled.
    """
    from mpi4py import MPI

    data, fault, is_for_all = b"", "", call == "allgather"
    try:
        root = existing_rank("root", root, comm.size)
        if call != "bcast" or comm.rank == root:
            data = _packed(value, MPI.pickle)
    except CommError as error:
        fault = str(error)
    told = comm.allgather((text, fault, data if is_for_all else b""))
    require_alike([(said, why) for said, why, _ in told])
    if call == "bcast":
        data = comm.bcast(data, root)
        return value if comm.rank == root else MPI.pickle.loads(data)
    everyone = [packed for _, _, packed in told] if is_for_all else comm.gather(data, root)
    return everyone and [MPI.pickle.loads(packed) for packed in everyone]


def _packed(value: Any, pickle: Any) -> bytes:
    try:
        return bytes(pickle.dumps(value))
    except Exception as error:  # an object's own code may raise anything
        said = (str(error).splitlines() or [""])[0]
        raise CommError(f"an object of type {type(value).__name__} cannot be pickled: {type(error).__name__}: {said}"
                        ) from None
