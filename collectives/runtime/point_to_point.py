"""Messages between two ranks, outside the calls that all ranks agree on: for servers and their clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np

from scaffe.collectives.awake import Awake
from scaffe.collectives.errors import CommError
from scaffe.collectives.runtime import foreign, memories
from scaffe.collectives.runtime.arguments import existing_rank, integer
from scaffe.collectives.transport.polling import PollBackoff

ANY = -1
"""As source or tag of a receive: whichever comes first."""
MAX_TAG = 32_767
"""The largest that MPI promises."""
LAST_TAG = MAX_TAG + 1
"""Of what follows a rank's last message; no MPI that we know has none that large."""
MAX_BYTES = (1 << 31) - 1
"""MPI counts in 32 bits."""


class Envelope(NamedTuple):
    """What is known of a message beside its contents."""

    source: int
    tag: int
    n_bytes: int


class Losses(Protocol):
    """Knows which of MPI's exceptions a lost rank has caused."""

    def translated(self, error: Exception) -> Exception:
        """What to raise for an exception: RankLost for a loss, itself otherwise."""


class PendingMessage:
    """A send or a receive under way. The array belongs to it until `wait` returns or `test` gives an envelope.

    Attributes:
        request: mpi4py's.
        is_receive: whether it receives.
    """

    def __init__(self, owner: PointToPoint, request: Any, array: np.ndarray, text: Callable[[], str],
                 is_receive: bool = False) -> None:
        """Args:
            owner: keeps it, and so the array, until it is done.
            request: mpi4py's.
            array: that it reads or writes.
            text: says in errors what it is.
            is_receive: whether it is one.
        """
        self._owner, self.request, self._array, self._text = owner, request, array, text
        self.is_receive = is_receive
        self._status = owner.mpi.Status()
        self._envelope: Envelope | None = None
        owner.pending.add(self)

    def test(self) -> Envelope | None:
        """Asks whether it is done.

        Returns:
            The message's envelope; None while it is under way. That of a send names this rank.

        Raises:
            CommError: the message is longer than the array, or MPI fails.
        """
        if self._envelope is None:
            try:
                if not self.request.Test(self._status):
                    return None
            except self._owner.mpi.Exception as error:
                self._owner.pending.discard(self)
                raise self._owner.failure(error, self._text()) from None
            self.finish(self._status)
        return self._envelope

    def is_under_way(self) -> bool:
        """Asks whether it is; one that has failed is not."""
        with suppress(CommError):
            return self.test() is None
        return False

    def finish(self, status: Any) -> None:
        """Note that MPI has said it is done; ``status`` is mpi4py's."""
        self._envelope = self._owner.envelope(status, self._array)
        self._owner.pending.discard(self)

    def wait(self, timeout: float | None = None) -> Envelope:
        """Sleeps between polls until it is done.

        Args:
            timeout: seconds; None for the communicator's deadline, infinity for none.

        Returns:
            As `test` does.

        Raises:
            CommError: as `test` does; or the time has passed, and the message is still under way.
        """
        if (envelope := self.test()) is not None:
            return envelope
        limit = self._owner.deadline if timeout is None else timeout
        waited, backoff = Awake(), PollBackoff()
        backoff.start()
        while (envelope := self.test()) is None:
            if waited.seconds() > limit:
                raise CommError(f"{self._text()}: not complete after {limit:g} s")
            time.sleep(backoff.seconds())
        return envelope

    def cancel(self) -> None:
        """Gives up a receive that nothing has come for. Where something has, it is received and thrown away."""
        if self._envelope is None:
            self.request.Cancel()
            self.request.Wait(self._status)
            self._envelope = Envelope(ANY, ANY, 0)
            self._owner.pending.discard(self)


class PointToPoint:
    """Sends and receives of one rank; `Communicator.messages`.

    Arrays are contiguous NumPy arrays of any plain dtype in host memory, of at most 2 GiB. Messages from one rank to
    another with one tag arrive in order, and never meet collectives. Several threads may call at once where MPI grants
    MPI_THREAD_MULTIPLE. What only one rank does wrong is its CommError alone.

    Attributes:
        rank: this one.
        n_ranks: how many there are.
        deadline: seconds after which waiting is an error.
        pending: messages under way.
        mpi: mpi4py's module; an import in every call would cost as much as the call.
    """

    def __init__(self, comm: Any, deadline: float, losses: Losses) -> None:
        """Args:
            comm: mpi4py communicator that nobody else uses.
            deadline: see the class.
            losses: of its ranks.
        """
        self._losses = losses
        self.rank: int = comm.rank
        self.n_ranks: int = comm.size
        self.deadline = deadline
        self.pending: set[PendingMessage] = set()
        self._comm, self._has_sent = comm, False
        from mpi4py import MPI

        self.mpi: Any = MPI

    def send(self, array: np.ndarray, dest: int, tag: int = 0, timeout: float | None = None) -> None:
        """Sends `array` to rank `dest`; returns when the array may be written again."""
        self.isend(array, dest, tag).wait(timeout)

    def recv(self, array: np.ndarray, source: int = ANY, tag: int = ANY, timeout: float | None = None) -> Envelope:
        """Receives a message, at most as long as `array`, into its beginning; see `irecv` and `PendingMessage.wait`."""
        return self.irecv(array, source, tag).wait(timeout)

    def isend(self, array: np.ndarray, dest: int, tag: int = 0) -> PendingMessage:
        """Starts to send.

        Args:
            array: what is sent; not to be written before the message is done.
            dest: rank that receives it.
            tag: 0 to 32,767.

        Raises:
            CommError: there is no such rank or tag, or the array cannot be sent.
        """
        dest, tag = existing_rank("dest", dest, self.n_ranks), self._tag(tag)
        array, self._has_sent = _viewed(array), True
        return PendingMessage(self, self._begun(self._comm.Isend, self._spec(array), dest, tag), array,
                              lambda: f"rank {self.rank}: send to rank {dest}, tag {tag}")

    def irecv(self, array: np.ndarray, source: int = ANY, tag: int = ANY) -> PendingMessage:
        """Starts to receive.

        Args:
            array: written from its beginning; longer than the message, the rest stays.
            source: rank that sends it, or ANY.
            tag: the message's, or ANY.

        Raises:
            CommError: there is no such rank or tag, or the array cannot be written.
        """
        source, tag = self._from(source, tag)
        array = _viewed(array)
        if not array.flags.writeable:
            raise CommError("a receive writes into its array, which is read-only")
        return PendingMessage(
            self, self._begun(self._comm.Irecv, self._spec(array), *self._matching(source, tag)), array,
            lambda: f"rank {self.rank}: receive from {_any('rank', source)}, {_any('tag', tag)}", is_receive=True)

    def iprobe(self, source: int = ANY, tag: int = ANY) -> Envelope | None:
        """Gives the envelope of the next message that a receive would take; None where there is none yet."""
        status = self.mpi.Status()
        found = self._begun(self._comm.Iprobe, *self._matching(*self._from(source, tag)), status)
        return self.envelope(status, None) if found else None

    def test_some(self, messages: Sequence[PendingMessage]) -> list[int]:
        """Asks which of some messages are done, in one call: far cheaper than `test` on each.

        Args:
            messages: all under way.

        Returns:
            The indexes of those that are done now, ascending.

        Raises:
            CommError: MPI fails, or a message is longer than its array.
        """
        statuses: list[Any] = []  # mpi4py adds one for each message that is done
        try:
            found = self.mpi.Request.Testsome([message.request for message in messages], statuses) or []
        except self.mpi.Exception as error:
            raise self.failure(error, f"rank {self.rank}: one of {len(messages)} messages") from None
        for index, status in zip(found, statuses[: len(found)], strict=True):
            messages[index].finish(status)
        return sorted(found)

    def fault(self) -> str:
        """Why the communicator cannot be freed yet: receives that nothing has come for; empty where it can."""
        n_waiting = sum(message.is_receive and message.is_under_way() for message in list(self.pending))
        return f"{n_waiting} receives are under way" if n_waiting else ""

    def drain(self) -> None:
        """Before the communicator is freed: takes in what was sent and not received, which MPI could give to the next
        communicator of the same number. All ranks call it, with no `fault`, and send nothing more."""
        largest = self.mpi.COMM_WORLD.Get_attr(self.mpi.TAG_UB)
        if not self._comm.allreduce(self._has_sent, self.mpi.LOR) or largest < LAST_TAG:
            return
        last = [self._comm.Isend([bytearray(), 0, self.mpi.BYTE], rank, LAST_TAG) for rank in range(self.n_ranks)]
        status = self.mpi.Status()
        for rank in range(self.n_ranks):
            status.tag = ANY
            while status.tag != LAST_TAG:
                self._comm.Probe(rank, self.mpi.ANY_TAG, status)
                self._comm.Recv([bytearray(n_bytes := status.Get_count(self.mpi.BYTE)), n_bytes, self.mpi.BYTE], rank,
                                status.tag)
        self.mpi.Request.Waitall([*last, *(message.request for message in self.pending)])
        self.pending.clear()

    def failure(self, error: Exception, what: str) -> Exception:
        """What to raise where MPI fails on a message, which `what` says: RankLost for a loss, CommError otherwise."""
        found = self._losses.translated(error)
        return found if found is not error else CommError(f"{what}: {str(error).splitlines()[0]}")

    def envelope(self, status: Any, array: np.ndarray | None) -> Envelope:
        """Reads mpi4py's `status` of a message from or into `array`."""
        if array is not None and status.source == self.mpi.ANY_SOURCE:  # an empty status: of a send
            return Envelope(self.rank, ANY, array.nbytes)
        return Envelope(status.source, status.tag, status.Get_count(self.mpi.BYTE))

    def _begun(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except self.mpi.Exception as error:
            raise self.failure(error, f"rank {self.rank}: a message") from None

    def _spec(self, array: np.ndarray) -> list[Any]:
        if array.dtype.hasobject or not array.flags.c_contiguous:
            raise CommError(f"expected a contiguous array of plain numbers, got {array.dtype} of shape {array.shape} "
                            f"with strides {array.strides}")
        if array.nbytes > MAX_BYTES:
            raise CommError(f"a message has at most {MAX_BYTES} bytes, the array has {array.nbytes}: send it in pieces")
        return [array, array.nbytes, self.mpi.BYTE]

    def _from(self, source: int, tag: int) -> tuple[int, int]:
        source = ANY if source == ANY else existing_rank("source", source, self.n_ranks)
        return source, ANY if tag == ANY else self._tag(tag)

    def _matching(self, source: int, tag: int) -> tuple[int, int]:
        return self.mpi.ANY_SOURCE if source == ANY else source, self.mpi.ANY_TAG if tag == ANY else tag

    def _tag(self, tag: int) -> int:
        tag = integer("tag", tag)
        if not 0 <= tag <= MAX_TAG:
            raise CommError(f"tag must be 0 to {MAX_TAG}, not {tag}")
        return tag


def _viewed(array: Any) -> np.ndarray:
    if memories.of(array) is not memories.HOST:
        raise CommError("a message to one rank needs an array in host memory")
    return foreign.viewed(array)


def _any(name: str, value: int) -> str:
    return f"any {name}" if value == ANY else f"{name} {value}"
