"""Frees a communicator. Calls on a freed one, and in a forked child, raise CommError."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any, NoReturn, Self

from scaffe import forking
from scaffe.collectives.errors import CommError
from scaffe.collectives.failure import flush_output

RANK_ATTRIBUTES = ("_ranks", "_resolve", "_run", "_submit", "algorithms", "links", "check_lost")
"""The attributes of a communicator that its calls go through: they are invalidated when it is freed."""
FREED = "the communicator has been freed: expected no call on it after free()"


class Invalidated:
    """Stands in for an attribute that can no longer be used: every use raises the same CommError."""

    def __init__(self, line: str) -> None:
        self.__dict__["_line"] = line

    def __call__(self, *_arguments: Any, **_more: Any) -> NoReturn:
        raise CommError(self.__dict__["_line"])

    def __getattr__(self, name: str) -> NoReturn:
        self()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        self()


def invalidate(owner: object, names: Iterable[str], line: str) -> None:
    """Invalidates attributes of an object: any use of them raises CommError with this line from now on."""
    for name in names:
        setattr(owner, name, Invalidated(line))


def forked_child_line() -> str:
    """The error for a call on a communicator or server in a forked child."""
    return (f"forked child {os.getpid()} of process {os.getppid()}: expected calls on communicators and servers in "
            "that process alone, which is the rank")


class ForkAware:
    """The base of objects that reach other ranks, and cannot do so in a forked child.

    Attributes:
        rank_attributes: names of the attributes that reach other ranks; invalidated in a forked child.
        is_inherited: whether this process is a forked child.
    """

    rank_attributes: tuple[str, ...] = ()
    is_inherited = False

    def invalidate_in_child(self) -> None:
        """Has the attributes invalidated in children that this process forks from now on."""
        forking.in_child(self._invalidate)

    def _invalidate(self) -> None:
        invalidate(self, self.rank_attributes, forked_child_line())
        self.is_inherited = True


class Freeable(ForkAware):
    """The base of a communicator: how it is freed, and how it ends the job."""

    rank_attributes = RANK_ATTRIBUTES
    _comm: Any
    _ranks: Any
    _is_freed = False

    def free(self) -> None:
        """Frees what this communicator holds of MPI, and ends its threads. All of its ranks call it.

        What has been started is done first. Arrays from `alloc` stay, on a device their memory does until the process
        ends, and so do communicators that were made of this one. Any call after this one is a CommError, but for
        `abort`, and for `free`, which does nothing then.

        After RankLost it ends this rank's threads only and does not wait: MPI keeps what is shared with a lost rank.

        Raises:
            CommError: the same on every rank, where one makes another call or has a receive under way. Nothing is freed
                then.
        """
        if self._is_freed:
            return
        self._ranks.free()
        if self._comm is not None:
            from mpi4py import MPI

            self._comm = MPI.COMM_WORLD  # for `abort`
        self._is_freed = True
        invalidate(self, RANK_ATTRIBUTES, FREED)

    def abort(self, code: int = 1) -> NoReturn:
        """Ends the job on all ranks at once with exit code `code`; in a forked child, that process alone."""
        is_rank = self._comm is not None and not self.is_inherited
        with contextlib.suppress(MemoryError):
            flush_output(is_launched=is_rank)
        if is_rank:
            self._comm.Abort(code)
        os._exit(code)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Frees it; after an exception it stays as it is, since the other ranks may not come."""
        if kind is None:
            self.free()
