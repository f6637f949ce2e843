"""A send or a receive under way, between two ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.fault_tolerance.fencing import SuspendAwareClock
from scaffe.collectives.transport.transport import PollBackoff

ANY = -1
"""As source or tag of a receive: whichever comes first."""


class Envelope(NamedTuple):
    """What is known of a message beside its contents."""

    source: int
    tag: int
    n_bytes: int


class Owner(Protocol):
    """What a pending message needs of the PointToPoint that started it.

    Attributes:
        mpi: mpi4py's module.
        deadline: seconds after which waiting is an error.
        pending: messages under way.
    """

    mpi: Any
    deadline: float
    pending: set[PendingMessage]

    def is_done(self, message: PendingMessage, status: Any) -> bool:
        """Asks MPI; `status`, mpi4py's, is then the message's."""

    def envelope(self, status: Any, array: np.ndarray | None) -> Envelope:
        """Reads the `status` of a message from or into `array`."""

    def failure(self, error: Exception, what: str) -> Exception:
        """What to raise where MPI fails on a message; `what` describes the message."""


class PendingMessage:
    """A send or a receive under way. The array belongs to it until `wait` returns or `test` gives an envelope.

    Attributes:
        request: mpi4py's.
        dest: the rank that it is sent to; None: it receives.
    """

    def __init__(self, owner: Owner, request: Any, array: np.ndarray, text: Callable[[], str],
                 dest: int | None = None) -> None:
        """Args:
            owner: keeps it, and so the array, until it is done.
            request: mpi4py's.
            array: that it reads or writes.
            text: says in errors what it is.
            dest: see the class.
        """
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
