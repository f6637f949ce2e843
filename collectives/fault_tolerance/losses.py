"""The losses of one communicator: found out by a call or by a thread that looks, and told to every rank that waits."""

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
from scaffe.collectives.fault_tolerance.finalize import ENDING
from scaffe.threads import Thread

LOOK_SECONDS = 0.05
T = TypeVar("T")
M = TypeVar("M")
NAMED_SECONDS = 1.0
"""How long who revoked may be ahead of the news about who is lost."""


class Losses:
    """What a rank knows of lost ranks, and the communicators on which nobody shall wait for them any longer.

    Once any rank has found a loss, every call on these communicators fails on every rank that is left: the one that
    finds it revokes all that it has made so far, and each other rank, whose thread looks at the first of them, revokes
    its own. So a rank is also woken that waits on a communicator which the finder had not made yet.

    Attributes:
        fault: why ranks cannot go on without a lost one; empty where they can. Then a loss ends the job, as MPI does.
        is_over: whether a loss is known; from then on nothing shall be sent.
    """

    def __init__(self, base: Any, whole: Losses | None = None) -> None:
        """Args:
            base: mpi4py communicator of all ranks that count; the one that `shrink` is called on.
            whole: of the ranks that these are some of: a loss among those ends all waiting here too.
        """
        self._base, self._comms, self._whole, self._parts = base, [base], whole, list[Losses]()
        self._rank, self._n_ranks = base.rank, base.size  # known when it has been freed, too
        self.fault = ulfm.fault()
        self.is_over = False
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._thread = Thread(self._look, "collectives-losses")
        if not self.fault:
            ENDING.first(base)
            self._thread.start()
            atexit.register(self.close)  # before MPI ends, which no thread may call then
        if whole is not None:
            whole._take_part(self)

    def _take_part(self, part: Losses) -> None:
        with self._lock:
            self._parts.append(part)
            is_late = self.is_over
        if is_late:
            part.tell()

    def kept(self, comm: Any) -> Any:
        """Returns `comm`, after noting that it is to be revoked with the others."""
        with self._lock:
            self._comms.append(comm)
            is_late = self.is_over
        if is_late:
            _revoke(comm)
        return comm

    def check(self) -> None:
        """Raises RankLost once a loss is known: for waits that MPI does not see."""
        if self.is_over:
            raise self.error()

    def check_peer(self, rank: int) -> None:
        """As ``check``: once any rank is lost, no message need arrive."""
        self.check()

    def trusted(self, value: T) -> T:
        """What has come from others; RankLost where one has been found lost meanwhile: it may be half there."""
        if not self.fault and self._base.Is_revoked():
            raise self.error()
        return value

    def translated(self, error: Exception) -> Exception:
        """What to raise for an exception out of MPI or of a wait: RankLost for a loss, itself otherwise.

        Whatever fails while a rank is known to be lost has failed by it. All ranks learn of the loss.
        """
        if isinstance(error, RankLost):
            self.tell()
            return error
        is_loss = not self.fault and (ulfm.is_loss(error) or bool(self.ranks()) or self.is_over
                                      or (ulfm.may_be_loss(error) and self._is_found_soon()))
        return self.error() if is_loss else error

    def rank_in_part(self) -> int | None:
        """This rank's number where the communicator has some of the job's ranks alone; None where it has all."""
        whole = self._whole
        while whole is not None and whole._n_ranks == self._n_ranks:
            whole = whole._whole
        return None if whole is None else int(self._rank)

    def apart(self, call: Callable[[], T], otherwise: T) -> T:
        """What a call returns in a thread that watches; `otherwise` at a loss, which is raised where somebody waits."""
        try:
            return call()
        except Exception as error:
            if not isinstance(error := self.translated(error), RankLost):
                raise error from None
            return otherwise

    def unless_known(self, give_up: Callable[[str], None]) -> Callable[[str], None]:
        """The same as `give_up` as long as no loss is known: from then on one ends the wait for which time ran out."""
        return lambda line: None if self.is_over else give_up(line)

    def error(self) -> RankLost:
        """Tells all ranks of a loss and names the lost ones, as far as they are known within a second; those that are
        none of these ranks by their numbers in the whole."""
        self.tell()
        if self._whole is not None and self._whole.is_over and not self.ranks():
            return self._whole.error()
        self._until(lambda: bool(self.ranks()))
        return RankLost(self._base.rank, self.ranks())

    def _is_found_soon(self) -> bool:
        return self._until(lambda: self.is_over or bool(self.ranks()) or self._base.Is_revoked())

    def _until(self, is_so: Callable[[], bool]) -> bool:
        """Waits for news, NAMED_SECONDS at most. Returns whether it is so."""
        from mpi4py import MPI

        until = time.monotonic() + NAMED_SECONDS
        while not (found := is_so()) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS / 10)
            MPI.COMM_SELF.Iprobe()  # lets MPI take in what it has been told
        return found

    def ranks(self) -> tuple[int, ...]:
        """The ranks that this one knows to be lost, ascending."""
        from mpi4py import MPI

        group = self._base.Get_failed()
        return tuple(sorted(MPI.Group.Translate_ranks(group, None, self._base.Get_group())))

    def tell(self) -> None:
        """Ends all waiting on these communicators, here and on the other ranks."""
        with self._lock:
            self.is_over = True
            parts = list(self._parts)
            for comm in () if self.fault else self._comms:
                _revoke(comm)
        for part in parts:
            part.tell()

    def end(self) -> None:
        """Nobody uses these communicators any longer, but to shrink the first.

        Raises:
            CommError: this MPI cannot go on.
        """
        if self.fault:
            raise CommError(f"a communicator cannot shrink: {self.fault}", everywhere=True)
        self.tell()
        self.close()

    def close(self) -> None:
        """Nobody looks any longer."""
        self._closing.set()
        if self._whole is not None:
            with self._whole._lock, suppress(ValueError):
                self._whole._parts.remove(self)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        atexit.unregister(self.close)

    def free(self) -> None:
        """Gives these communicators back to MPI. All ranks call it, and none of them uses one any more."""
        self.close()
        with self._lock:  # a loss of the whole, told meanwhile, finds none to revoke
            comms, self._comms = self._comms, []
        for comm in comms:
            if not ENDING.needs(comm):
                comm.Free()

    def _look(self) -> None:
        from mpi4py import MPI

        while not self.is_over and not self._closing.wait(LOOK_SECONDS):
            try:
                self._base.Iprobe()  # lets MPI take in what others have told
                is_found = self._base.Is_revoked() or self._base.Get_failed().size > 0
            except MPI.Exception:
                is_found = True
            if is_found:
                self.tell()


def outlived(comm: Any, labels: Sequence[T], make: Callable[[Any, list[T]], M], has_ended: bool = False) -> M:
    """What is made on the ranks that are left of a communicator, in their order. All of them call it.

    A rank that has not found the loss may be about to agree on taking in others (`loss.bridge`): so each rank agrees
    once on each communicator that it leaves by a loss, here or there, and all learn that it is over.

    Args:
        comm: mpi4py's, revoked.
        labels: one for each of its ranks.
        make: makes it of mpi4py's new communicator and its ranks' labels; it may raise RankLost.
        has_ended: whether this rank knows that all have agreed so.
    """
    from mpi4py import MPI

    while True:
        if not has_ended:
            agreed(comm, False)
        left, has_ended = comm.Shrink(), False
        ENDING.without(left)
        labels = [labels[rank] for rank in MPI.Group.Translate_ranks(left.Get_group(), None, comm.Get_group())]
        comm = left
        with suppress(RankLost):  # another one, while the rest set up: once more
            return make(comm, labels)


def agreed(comm: Any, is_well: bool) -> bool:
    """Whether it is well on all ranks, none of which is lost: the same answer everywhere (MPI_Comm_agree).

    Args:
        comm: mpi4py's, revoked or not.
        is_well: whether it is here.
    """
    from mpi4py import MPI

    try:
        return bool(comm.Agree(int(is_well)))
    except MPI.Exception:
        return False


def joined(comm: Any, make: Callable[[Any, list[int]], M]) -> M:
    """What is made on ranks that have just been joined, or on those that are left of them. All of them call it.

    Args:
        comm: mpi4py's.
        make: as `outlived` has it; all ranks have one label, so that they make nodes as far as they share memory.
    """
    labels = [0] * comm.size
    ENDING.without(comm)
    try:
        return make(comm, labels)
    except RankLost:
        return outlived(comm, labels, make)


def _revoke(comm: Any) -> None:
    if not comm.Is_revoked():
        comm.Revoke()


P = ParamSpec("P")


def telling(method: Callable[P, T]) -> Callable[P, T]:
    """A method of an object with `losses`: where it fails by a loss it raises RankLost, and all ranks are told.

    An error that all its ranks raise says whether these are only a part of the job's.
    """

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            losses = args[0].losses  # type: ignore[attr-defined]
            found = losses.translated(error)
            if found is error:
                if isinstance(error, CommError) and error.everywhere:
                    error.rank_in_part = losses.rank_in_part()
                raise
            raise found from None
    return call
