"""One small message and one long one in device memory before anything relies on them: an MPI library that says it takes
device memory may stand on a network library that does not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.messages.start_queue import wait_until

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

TAG = 80
LENGTHS = (1 << 10, 1 << 20)
"""Bytes; libraries send the second otherwise than the first."""
PATIENCE_SECONDS = 20.0
_kept: list[Any] = []  # memory that an MPI library may still write to, where a message did not come


def fault(comm: Intracomm) -> str:
    """Sends device memory round a ring of all ranks.

    Args:
        comm: all of its ranks call it; this rank's GPU is the current one.

    Returns:
        What went wrong, the same on every rank; empty where every rank received what the one before it sent.
    """
    for n_bytes in LENGTHS:
        found = comm.allgather(_exchange(comm, n_bytes))
        if wrong := next((f"rank {rank} {text}" for rank, text in enumerate(found) if text), ""):
            return wrong
    return ""


def _exchange(comm: Intracomm, n_bytes: int) -> str:
    from mpi4py import MPI

    cupy = device.load()
    sent, received = cupy.zeros(n_bytes, np.uint8), cupy.zeros(n_bytes, np.uint8)
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
            return f"has waited {PATIENCE_SECONDS:g} s for a message in device memory"
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
