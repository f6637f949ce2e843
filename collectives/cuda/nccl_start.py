"""NCCL starts on all ranks of a job, or on none: its own start returns when all have come, and waits without end for a
rank that has died, or could not begin. So a thread starts it, while the rank looks at the others.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.messages.message import wait_until
from scaffe.collectives.errors import CommError
from scaffe.threads import Thread

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

TAG = 81


class Verdict(Enum):
    """What to do after a look.

    Attributes:
        WAIT: look again.
        TELL: tell the others that NCCL does not start here, then compare with them.
        COMPARE: compare with the others; all come to this.
        LOST: give up: a rank is lost.
    """

    WAIT = auto()
    TELL = auto()
    COMPARE = auto()
    LOST = auto()


def verdict(ended: str | None, is_told: bool, has_loss: bool) -> Verdict:
    """Decides (pure). ``ended``: None while this rank starts, then why it did not, empty where it did; ``is_told``:
    another rank has told that it did not; ``has_loss``: a rank is lost."""
    if has_loss:
        return Verdict.LOST
    if ended is not None:
        return Verdict.TELL if ended else Verdict.COMPARE
    return Verdict.COMPARE if is_told else Verdict.WAIT


class Attempt:
    """One rank's start, in a thread. ``ended``: as `verdict` has it."""

    def __init__(self, make: Callable[[], Any], number: int) -> None:
        """``make``: makes NCCL's communicator; ``number``: this rank's GPU."""
        self._make, self._number = make, number
        self.communicator: Any = None
        self.ended: str | None = None
        Thread(self._run, "collectives-nccl-start").start()

    def _run(self) -> None:
        try:
            device.make_current(self._number)
            self.communicator = self._make()
        except Exception as error:  # CuPy's NcclError has no name without CuPy
            self.ended = str(error) or type(error).__name__
        else:
            self.ended = ""


_left: list[Attempt] = []  # what may end at any time, or never: nobody uses or frees it


def start(nccl: Any, comm: Intracomm, number: int, has_loss: Callable[[], bool]) -> tuple[Any, str]:
    """Starts NCCL on all ranks of `comm`, which all call it.

    Args:
        nccl: CuPy's module.
        number: this rank's GPU.
        has_loss: whether a rank is lost.

    Returns:
        NCCL's communicator and an empty text, or None and why there is none; on all ranks alike.

    Raises:
        CommError: a rank is lost.
    """
    identity, fault = comm.bcast(_identity(nccl) if comm.rank == 0 else None)
    if fault:
        return None, fault
    attempt = Attempt(partial(nccl.NcclCommunicator, comm.size, identity, comm.rank), number)
    ended, telling = _followed(attempt, comm, has_loss)
    everyone = comm.allgather(ended)
    faults = [(rank, text) for rank, text in enumerate(everyone) if text]
    for rank, _ in faults:
        if rank != comm.rank:
            comm.recv(source=rank, tag=TAG)
    for request in telling:
        request.wait()
    if not faults:
        return attempt.communicator, ""
    if ended == "":
        attempt.communicator.abort()
    _left.append(attempt)
    return None, "rank {}: NCCL does not start: {}".format(*faults[0])


def _identity(nccl: Any) -> tuple[bytes, str]:
    try:
        return nccl.get_unique_id(), ""
    except Exception as error:  # as above
        return b"", f"rank 0: NCCL does not start: {error}"


def _followed(attempt: Attempt, comm: Intracomm, has_loss: Callable[[], bool]) -> tuple[str | None, list[Any]]:
    """How far the attempt has come when this rank compares, and what it has sent to those that wait."""
    from mpi4py import MPI

    ended: str | None = None
    found = Verdict.WAIT

    def is_decided() -> bool:
        nonlocal ended, found
        ended = attempt.ended
        found = verdict(ended, comm.iprobe(MPI.ANY_SOURCE, TAG), has_loss())
        return found is not Verdict.WAIT

    wait_until(is_decided, backs_off=True)
    if found is Verdict.LOST:
        _left.append(attempt)
        raise CommError("NCCL does not start: a rank is lost")
    others = [rank for rank in range(comm.size) if rank != comm.rank] if found is Verdict.TELL else []
    return ended, [comm.isend(None, rank, TAG) for rank in others]
