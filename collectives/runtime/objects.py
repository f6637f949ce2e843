"""mpi4py's collectives on objects, where one that cannot be pickled is everybody's error."""

from __future__ import annotations

from typing import Any

from scaffe.collectives.errors import CommError


def exchanged(comm: Any, call: str, value: Any, root: int = 0) -> Any:
    """Runs "bcast", "gather" or "allgather" on objects; all ranks call it.

    Each object is pickled before anything is sent: the others would wait for a rank that had failed in between.

    Args:
        comm: mpi4py's.
        call: which.
        value: this rank's object.
        root: where a broadcast starts or a gather ends.

    Returns:
        What mpi4py's call does.

    Raises:
        CommError: the same on every rank, where an object cannot be pickled.
    """
    from mpi4py import MPI

    packed = _packed(MPI.pickle, value) if call != "bcast" or comm.rank == root else ("", b"")
    if call == "bcast":
        fault, data = comm.bcast(packed, root)
        _refuse({root: fault})
        return MPI.pickle.loads(data) if comm.rank != root else value
    if call == "gather":
        _refuse(dict(enumerate(comm.allgather(packed[0]))))
        everyone = comm.gather(packed, root)
    else:
        everyone = comm.allgather(packed)
        _refuse({rank: fault for rank, (fault, _) in enumerate(everyone)})
    return everyone and [MPI.pickle.loads(data) for _, data in everyone]


def _packed(pickle: Any, value: Any) -> tuple[str, bytes]:
    """Why an object cannot be pickled, or "", and it, pickled."""
    try:
        return "", pickle.dumps(value)
    except Exception as error:  # an object's own code may raise anything
        said = (str(error).splitlines() or [""])[0]
        return f"an object of type {type(value).__name__} cannot be pickled: {type(error).__name__}: {said}", b""


def _refuse(faults: dict[int, str]) -> None:
    for rank, fault in faults.items():
        if fault:
            raise CommError(f"rank {rank}: {fault}", everywhere=True)
