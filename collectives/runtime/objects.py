"""mpi4py's collectives on objects. A fault, or another call, on one rank is a CommError on all of them."""

from __future__ import annotations

from typing import Any

from scaffe.collectives.errors import CommError
from scaffe.collectives.runtime.arguments import existing_rank
from scaffe.collectives.runtime.mismatch import require_alike


class ObjectCall:
    """A "bcast", "gather" or "allgather" of objects, on this rank.

    Attributes:
        text: the call in words, as every rank must have it.
    """

    def __init__(self, call: str, value: Any, root: Any, comm: Any) -> None:
        """Args:
            call: which.
            value: this rank's object.
            root: where a broadcast starts or a gather ends.
            comm: mpi4py's.
        """
        self._call, self._value, self._root, self._comm, self._fault = call, value, root, comm, ""
        try:
            self._root = existing_rank("root", root, comm.size)
        except CommError as error:
            self._fault = str(error)
        self.text = f"{call} of objects" + ("" if call == "allgather" else f" (root {self._root!r})")

    def run(self) -> Any:
        """Makes the call; all ranks do.

        The ranks first exchange their calls and faults. Without that, ranks would wait for one that had failed, and MPI
        could match a message of one call with another call.

        Returns:
            What mpi4py's call does.

        Raises:
            CommError: the same on every rank, where calls differ, there is no such root, or an object cannot be
                pickled.
        """
        from mpi4py import MPI

        comm, root, is_for_all = self._comm, self._root, self._call == "allgather"
        data = b"" if self._fault or (self._call == "bcast" and comm.rank != root) else self._packed(MPI.pickle)
        told = comm.allgather((self.text, self._fault, data if is_for_all else b""))
        require_alike([(text, fault) for text, fault, _ in told])
        if self._call == "bcast":
            data = comm.bcast(data, root)
            return self._value if comm.rank == root else MPI.pickle.loads(data)
        everyone = [data for _, _, data in told] if is_for_all else comm.gather(data, root)
        return everyone and [MPI.pickle.loads(data) for data in everyone]

    def _packed(self, pickle: Any) -> bytes:
        """The object, pickled; empty where that cannot be, which is this rank's fault."""
        try:
            return bytes(pickle.dumps(self._value))
        except Exception as error:  # an object's own code may raise anything
            said = (str(error).splitlines() or [""])[0]
            self._fault = (f"an object of type {type(self._value).__name__} cannot be pickled: "
                           f"{type(error).__name__}: {said}")
        return b""
