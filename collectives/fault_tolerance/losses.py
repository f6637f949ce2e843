"""Losses of ranks: found by a call that fails or by a thread that polls MPI, and notified to every rank that waits."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from scaffe.collectives.errors import CommError, RankLost
from scaffe.collectives.fault_tolerance import ulfm
from scaffe.collectives.fault_tolerance.finalize import FINALIZER
from scaffe.threads import Thread

LOOK_SECONDS = 0.05
T = TypeVar("T")
M = TypeVar("M")
NAMED_SECONDS = 1.0
"""How much later than a revocation the news about who is lost may come."""


class Losses:
    """What a rank knows of lost ranks, and the communicators that it revokes after a loss.

    Once any rank has found a loss, every call on these communicators fails on every rank that is left: the finder
    revokes all that it has made so far, and each other rank, whose thread polls the first of them, revokes its own. So
    a rank is woken too that waits on a communicator which the finder has not made yet.

    Attributes:
        fault: why ranks cannot go on after a loss, which then ends the job; empty where they can.
        has_loss: whether a loss is known; nothing is sent from then on.
    """

    def __init__(self, base: Any, parent: Losses | None = None) -> None:
        """``parent``: the losses of a communicator of which these are some ranks: a loss there is one here too."""
        self._base, self._comms, self._parent, self._children = base, [base], parent, list[Losses]()
        self._rank, self._n_ranks = base.rank, base.size  # known when it has been freed, too
        self.fault = ulfm.fault()
        self.has_loss = False
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._thread = Thread(self._look, "collectives-losses")
        if not self.fault:
            FINALIZER.meet_by_default(base)
            self._thread.start()
            atexit.register(self.close)  # before MPI ends, which no thread may call then
        if parent is not None:
            parent._add_child(self)

    def _add_child(self, part: Losses) -> None:
        with self._lock:
            self._children.append(part)
            is_late = self.has_loss
        if is_late:
            part.notify()

    def register(self, comm: Any) -> Any:
        """Returns `comm`, which will be revoked with the others."""
        with self._lock:
            self._comms.append(comm)
            is_late = self.has_loss
        if is_late:
            _revoke(comm)
        return comm

    def check(self) -> None:
        """Raises RankLost once a loss is known. For waits that MPI knows nothing of."""
        if self.has_loss:
            raise self.error()

    def check_peer(self, rank: int) -> None:
        """As ``check``: once any rank is lost, messages may not arrive."""
        self.check()

    def checked(self, value: T) -> T:
        """Returns what has been received. Raises RankLost where a loss is known: it may be incomplete."""
        if not self.fault and self._base.Is_revoked():
            raise self.error()
        return value

    def as_rank_lost(self, error: Exception) -> Exception:
        """What to raise for an exception from MPI or from a wait: RankLost for a loss, else the exception itself.

        Whatever fails while a rank is known to be lost counts as failed by the loss, which all ranks are notified of.
        """
        if isinstance(error, RankLost):
            self.notify()
            return error
        is_loss = not self.fault and (ulfm.is_loss(error) or bool(self.ranks()) or self.has_loss
                                      or (ulfm.may_be_loss(error) and self._is_found_soon()))
        return self.error() if is_loss else error

    def rank_in_subset(self) -> int | None:
        """This rank's number where the communicator has only some of the job's ranks; None where it has all."""
        parent = self._parent
        while parent is not None and parent._n_ranks == self._n_ranks:
            parent = parent._parent
        return None if parent is None else int(self._rank)

    def or_default(self, call: Callable[[], T], otherwise: T) -> T:
        """What the call returns, or `otherwise` after a loss. For threads that watch: others raise the loss."""
        try:
            return call()
        except Exception as error:
            if not isinstance(error := self.as_rank_lost(error), RankLost):
                raise error from None
            return otherwise

    def unless_lost(self, give_up: Callable[[str], None]) -> Callable[[str], None]:
        """`give_up`, which does nothing once a loss is known: the loss ends the wait."""
        return lambda line: None if self.has_loss else give_up(line)

    def error(self) -> RankLost:
        """Notifies all ranks of a loss and makes the error. Returns an error that names the lost ranks, as far as they
        are known within a second; those that are in the parent communicator alone by their numbers there."""
        self.notify()
        if self._parent is not None and self._parent.has_loss and not self.ranks():
            return self._parent.error()
        self._until(lambda: bool(self.ranks()))
        return RankLost(self._base.rank, self.ranks())

    def _is_found_soon(self) -> bool:
        return self._until(lambda: self.has_loss or bool(self.ranks()) or self._base.Is_revoked())

    def _until(self, is_so: Callable[[], bool]) -> bool:
        """Waits until `is_so`, NAMED_SECONDS at most. Returns whether it is."""
        from mpi4py import MPI

        until = time.monotonic() + NAMED_SECONDS
        while not (found := is_so()) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS / 10)
            MPI.COMM_SELF.Iprobe()  # lets MPI receive notifications
        return found

    def ranks(self) -> tuple[int, ...]:
        """The ranks that this one knows to be lost, ascending."""
        from mpi4py import MPI

        group = self._base.Get_failed()
        return tuple(sorted(MPI.Group.Translate_ranks(group, None, self._base.Get_group())))

    def notify(self) -> None:
        """Revokes these communicators and those of the children: ends all waiting, here and on the other ranks."""
        with self._lock:
            self.has_loss = True
            parts = list(self._children)
            for comm in () if self.fault else self._comms:
                _revoke(comm)
        for part in parts:
            part.notify()

    def end(self) -> None:
        """Nobody uses these communicators any longer, but to shrink the first. Raises CommError: this MPI cannot go
        on."""
        if self.fault:
            raise CommError(f"a communicator cannot shrink: {self.fault}", everywhere=True)
        self.notify()
        self.close()

    def close(self) -> None:
        self._closing.set()
        if self._parent is not None:
            with self._parent._lock, suppress(ValueError):
                self._parent._children.remove(self)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        atexit.unregister(self.close)

    def free(self) -> None:
        """Frees these communicators, which nobody uses any more. All ranks call it."""
        self.close()
        with self._lock:  # a loss in the parent communicator then finds none to revoke
            comms, self._comms = self._comms, []
        for comm in comms:
            if not FINALIZER.meets_on(comm):
                comm.Free()

    def _look(self) -> None:
        from mpi4py import MPI

        while not self.has_loss and not self._closing.wait(LOOK_SECONDS):
            try:
                self._base.Iprobe()  # lets MPI receive notifications
                is_found = self._base.Is_revoked() or self._base.Get_failed().size > 0
            except MPI.Exception:
                is_found = True
            if is_found:
                self.notify()


def on_ranks_left(comm: Any, labels: Sequence[T], make: Callable[[Any, list[T]], M], has_ended: bool = False) -> M:
    """Shrinks a communicator to the ranks that are left, in their order, and makes something of it. All these call it.

    A rank that has not found the loss may be about to agree on merging with others (`joining.merged`). So each rank
    takes part in one agreement on each communicator that is lost, here or there, and all learn of the loss.

    Args:
        make: takes mpi4py's new communicator and its ranks' labels; it may raise RankLost.
        has_ended: whether this rank has taken part in that agreement.

    Returns:
        What `make` returns.
    """
    from mpi4py import MPI

    while True:
        if not has_ended:
            agreed(comm, False)
        left, has_ended = comm.Shrink(), False
        FINALIZER.meet_instead(left)
        labels = [labels[rank] for rank in MPI.Group.Translate_ranks(left.Get_group(), None, comm.Get_group())]
        comm = left
        with suppress(RankLost):  # another one, while the rest set up: once more
            return make(comm, labels)


def agreed(comm: Any, is_well: bool) -> bool:
    """Agrees with all ranks whether all is well: False where one is lost; the same answer on all (MPI_Comm_agree)."""
    from mpi4py import MPI

    try:
        return bool(comm.Agree(int(is_well)))
    except MPI.Exception:
        return False


def on_joined_ranks(comm: Any, make: Callable[[Any, list[int]], M]) -> M:
    """Makes something of ranks that have just been merged, or of those that are left of them. All of them call it.
    ``make``: as in `on_ranks_left`. All ranks have one label, so that they make nodes as far as they share memory."""
    labels = [0] * comm.size
    FINALIZER.meet_instead(comm)
    try:
        return make(comm, labels)
    except RankLost:
        return on_ranks_left(comm, labels, make)


def _revoke(comm: Any) -> None:
    if not comm.Is_revoked():
        comm.Revoke()


P = ParamSpec("P")


def loss_notification(method: Callable[P, T]) -> Callable[P, T]:
    """Decorates a method of an object with `losses`: a loss raises RankLost there, and all ranks are notified.

    Sets `CommError.rank_in_subset` of an error that all ranks raise.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            losses = args[0].losses  # type: ignore[attr-defined]
            found = losses.as_rank_lost(error)
            if found is error:
                if isinstance(error, CommError) and error.everywhere:
                    error.rank_in_subset = losses.rank_in_subset()
                raise
            raise found from None
    return call
