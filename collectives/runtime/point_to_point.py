"""Messages between two ranks, which other ranks need not know of: for servers and their clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.fault_tolerance import ulfm
from scaffe.collectives.fault_tolerance.fencing import SuspendAwareClock
from scaffe.collectives.runtime import memories
from scaffe.collectives.runtime.arguments import MAX_BYTES, existing_rank, integer
from scaffe.collectives.runtime.freed_communicator import ForkAware
from scaffe.collectives.transport.transport import PollBackoff

ANY = -1
"""As source or tag of a receive: whichever comes first."""
MAX_TAG = 32_767
"""The largest that MPI promises."""
LAST_TAG = MAX_TAG + 1
"""Of what follows a rank's last message; no MPI that we know has none that large."""


class Envelope(NamedTuple):
    """What is known of a message beside its contents."""

    source: int
    tag: int
    n_bytes: int


class Losses(Protocol):
    """Knows which ranks are lost, and which exceptions of MPI a loss has caused."""

    def check_peer(self, rank: int) -> None:
        """Raises RankLost where a message to that rank is known not to arrive."""

    def as_rank_lost(self, error: Exception) -> Exception:
        """What to raise for an exception: RankLost for a loss, itself otherwise."""


class PendingMessage:
    """A send or a receive under way. The array belongs to it until `wait` returns or `test` gives an envelope.

    Attributes:
        dest: the rank that it is sent to; None: it receives.
    """

    def __init__(self, owner: PointToPoint, request: Any, array: np.ndarray, text: Callable[[], str],
                 dest: int | None = None) -> None:
        """``owner``: keeps it, and so the array, until it is done; ``text``: says in errors what it is."""
        self._owner, self.request, self._array, self._text = owner, request, array, text
        self.dest = dest
        self._status = owner.mpi.Status()
        self._envelope: Envelope | None = None
        owner.pending.add(self)

    def test(self) -> Envelope | None:
        """Asks whether it is done.

        Returns:
            The message's envelope; None while it is under way. That of a send names this rank.

        Raises:
            CommError: the message is longer than the array, or MPI fails.
            RankLost: it is for a lost rank.
        """
        if self._envelope is None:
            try:
                if not self._owner.is_done(self, self._status):
                    return None
            except self._owner.mpi.Exception as error:
                self._owner.pending.discard(self)
                raise self._owner.failure(error, self._text()) from None
            self.finish(self._status)
        return self._envelope

    def is_under_way(self) -> bool:
        """Whether it is still under way; one that has failed is not."""
        with suppress(CommError):
            return self.test() is None
        return False

    def finish(self, status: Any) -> None:
        """Records that MPI has completed it; ``status`` is mpi4py's."""
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
        waited, backoff = SuspendAwareClock(), PollBackoff()
        backoff.start()
        while (envelope := self.test()) is None:
            if waited.seconds() > limit:
                raise CommError(f"{self._text()}: not complete after {limit:g} s")
            time.sleep(backoff.seconds())
        return envelope

    def cancel(self) -> None:
        """Cancels a receive. A message that has come for it already is received and dropped."""
        if self._envelope is None:
            self.request.Cancel()
            self.request.Wait(self._status)
            self._envelope = Envelope(ANY, ANY, 0)
            self._owner.pending.discard(self)


class PointToPoint(ForkAware):
    """Sends and receives of one rank; `Communicator.messages`.

    Arrays are contiguous NumPy arrays of any plain dtype in host memory, of at most 2 GiB. Messages from one rank to
    another with one tag arrive in order, and never meet collectives. Several threads may call at once where MPI grants
    MPI_THREAD_MULTIPLE. What only one rank does wrong is its CommError alone.

    Attributes:
        deadline: seconds after which waiting is an error.
        pending: messages under way.
        mpi: mpi4py's module; an import in every call would cost as much as the call.
    """

    rank_attributes = ("_comm", "mpi", "is_done")

    def __init__(self, comm: Any, deadline: float, losses: Losses) -> None:
        """``comm``: mpi4py communicator that nobody else uses."""
        self._losses = losses
        self.rank: int = comm.rank
        self.n_ranks: int = comm.size
        self.deadline = deadline
        self.pending: set[PendingMessage] = set()
        self._comm, self._has_sent = comm, False
        self._may_lose = not ulfm.fault()
        from mpi4py import MPI

        self.mpi: Any = MPI
        self.invalidate_in_child()

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
                              lambda: f"rank {self.rank}: send to rank {dest}, tag {tag}", dest)

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
            lambda: f"rank {self.rank}: receive from {_any('rank', source)}, {_any('tag', tag)}")

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
        together = [index for index, message in enumerate(messages) if message.dest is None or not self._may_lose]
        statuses: list[Any] = []  # mpi4py adds one for each message that is done
        try:
            done = self.mpi.Request.Testsome([messages[index].request for index in together], statuses) or []
        except self.mpi.Exception as error:
            raise self.failure(error, f"rank {self.rank}: one of {len(messages)} messages") from None
        found = [together[number] for number in done]
        for index, status in zip(found, statuses[: len(found)], strict=True):
            messages[index].finish(status)
        return sorted(found + (self._sent(messages) if self._may_lose else []))

    def _sent(self, messages: Sequence[PendingMessage]) -> list[int]:
        """The indexes of sends that are done, each looked at by itself: those to one rank leave one after the other."""
        found, busy = list[int](), set[int]()
        for index, message in enumerate(messages):
            if message.dest is not None and message.dest not in busy:
                if message.test() is None:
                    busy.add(message.dest)
                else:
                    found.append(index)
        return found

    def is_done(self, message: PendingMessage, status: Any) -> bool:
        """Asks MPI; `status`, mpi4py's, is then the message's.

        Where ranks may be lost, a send is not tested before it has left. Open MPI gives up one to a lost rank as it is
        tested, and ends the job where that fails, or comes back, a moment later ("Send error after request freed";
        5.0.11: 2 of 60 jobs that lost a node while rows were on their way, none of 60 since).
        """
        if message.dest is None or not self._may_lose:
            return bool(message.request.Test(status))
        if not message.request.Get_status(status):
            self._losses.check_peer(message.dest)
            return False
        if code := status.Get_error():
            raise self.mpi.Exception(code)
        return bool(message.request.Test(status))

    def fault(self) -> str:
        """Why the communicator cannot be freed yet: receives that nothing has come for; empty where it can."""
        n_waiting = sum(message.dest is None and message.is_under_way() for message in list(self.pending))
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
        found = self._losses.as_rank_lost(error)
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
    return memories.viewed(array)


def _any(name: str, value: int) -> str:
    return f"any {name}" if value == ANY else f"{name} {value}"
