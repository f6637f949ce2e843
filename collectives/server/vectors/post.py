"""Messages, with or without an array, between the parts of all ranks: within a rank by a queue, else by MPI."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scaffe.collectives.errors import RankLost
from scaffe.collectives.server.vectors.messages import Message

if TYPE_CHECKING:
    from scaffe.collectives.runtime.lasting import LastingMessages

HEAD, ARRAY = 0, 1
"""MPI's tags of a message and of the array that follows it."""


class Mail(NamedTuple):
    """A message that has come, with the rank that sent it."""

    source: int
    message: Message
    payload: np.ndarray | None


class Post:
    """One rank's way to the parts of all ranks, for one thread.

    From one rank to another messages without arrays arrive in the order sent; later ones may pass one with an array.

    Args:
        messages: a communicator's point-to-point messages that nobody else uses; None for one rank.
        rank: this one.
        dtype: of all arrays.
        lasting: where ranks may be lost, whose ``messages`` these are: what is for or from a lost one is dropped.

    Attributes:
        lost: the ranks that are known to be lost.
        n_bytes: sent to other ranks so far.
        n_messages: sent to other ranks so far.
    """

    def __init__(self, messages: Any, rank: int, dtype: np.dtype, lasting: LastingMessages | None = None) -> None:
        self._messages, self._rank, self._dtype, self._lasting = messages, rank, dtype, lasting
        self._dropped: tuple[type[Exception], ...] = (RankLost,) if lasting is not None else ()  # what is let pass
        self.lost: tuple[int, ...] = ()
        self._here: deque[Mail] = deque()
        self._leaving: deque[Any] = deque()
        self._coming: list[tuple[Any, Mail]] = []
        self.n_bytes = self.n_messages = 0

    def send(self, dest: int, message: Message, payload: np.ndarray | None = None) -> None:
        """Send; the array is not to be written afterwards."""
        if dest == self._rank:
            self._here.append(Mail(self._rank, message, payload))
            return
        if dest in self.lost:
            return
        head = np.frombuffer(pickle.dumps(message, pickle.HIGHEST_PROTOCOL), np.uint8)
        with suppress(*self._dropped):
            self._leaving.append(self._messages.isend(head, dest, HEAD))
            self.n_bytes += head.nbytes
            self.n_messages += 1
            if payload is not None:
                self._leaving.append(self._messages.isend(payload, dest, ARRAY))
                self.n_bytes += payload.nbytes

    def receive(self) -> Iterator[Mail]:
        """What has come; does not wait."""
        while self._here:
            yield self._here.popleft()
        if self._messages is None:
            return
        with suppress(*self._dropped):
            yield from self._heads()
        for entry in list(self._coming):
            if (is_done := self._is_done(entry[0])) is not False:
                self._coming.remove(entry)
            if is_done:
                yield entry[1]
        while self._leaving and self._is_done(self._leaving[0]) is not False:
            self._leaving.popleft()
        if self._lasting is not None:
            self.lost = self._lasting.lost()

    def _heads(self) -> Iterator[Mail]:
        """Messages without an array; the arrays of others are received from here on."""
        while (found := self._messages.iprobe(tag=HEAD)) is not None:
            head = np.empty(found.n_bytes, np.uint8)
            self._messages.recv(head, found.source, HEAD)
            message: Message = pickle.loads(head.tobytes())  # from a rank of this job
            if not message.n_elems:
                yield Mail(found.source, message, None)
                continue
            array = np.empty(message.n_elems, self._dtype)
            self._coming.append((self._messages.irecv(array, found.source, ARRAY), Mail(found.source, message, array)))

    def _is_done(self, pending: Any) -> bool | None:
        """Whether a message is complete; None if a lost rank has made it fail."""
        try:
            return pending.test() is not None
        except self._dropped:
            return None

    @property
    def is_busy(self) -> bool:
        """Whether messages of this rank are still leaving, or arrays coming."""
        return bool(self._leaving or self._coming)
