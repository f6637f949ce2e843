"""Freeing a communicator, and what it has in place of its ranks afterwards."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from scaffe.collectives.errors import CommError

GONE = ("_ranks", "_resolver", "_selector", "_resolve", "_run", "links", "check_lost")
"""A communicator's attributes that all of its calls go through."""


class Freed:
    """Whatever it is asked for, called as or told is the same error."""

    def __call__(self, *_arguments: Any, **_more: Any) -> NoReturn:
        """Raises CommError."""
        raise CommError("the communicator has been freed: expected no call on it after free()")

    def __getattr__(self, name: str) -> NoReturn:
        """See `__call__`."""
        self()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """See `__call__`."""
        self()


class Freeable:
    """What a communicator does at its end."""

    _comm: Any
    _ranks: Any
    _is_freed = False

    def free(self) -> None:
        """Gives back to MPI what this communicator holds of it, and ends its threads. All of its ranks call it.

        What has been started is done first. Arrays from `alloc` stay, on a device their memory does until the process
        ends, and so do communicators that were made of this one. Any call after this one is a CommError, but for
        `abort`, and for `free`, which does nothing then.

        After RankLost it ends this rank's threads alone, and nobody waits: MPI keeps what is shared with a lost rank.

        Raises:
            CommError: the same on every rank, where one makes another call, or has a receive under way: nothing is
                freed then.
        """
        if self._is_freed:
            return
        self._ranks.free()
        if self._comm is not None:
            from mpi4py import MPI

            self._comm = MPI.COMM_WORLD  # for `abort`
        self._is_freed = True
        for name in GONE:
            setattr(self, name, Freed())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Frees it; after an exception it stays as it is, since the other ranks may not come."""
        if kind is None:
            self.free()
