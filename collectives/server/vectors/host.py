"""Sends messages, with or without an array, between the parts of all ranks, and serves a shard's vectors."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scaffe.collectives.errors import RankLost
from scaffe.collectives.server.vectors import messages as m
from scaffe.collectives.server.vectors.commands import REDUCING
from scaffe.collectives.server.vectors.messages import Message
from scaffe.collectives.server.vectors.shard import VectorShard

if TYPE_CHECKING:
    from scaffe.collectives.runtime.fault_tolerant_messages import FaultTolerantMessages


HEAD, ARRAY = 0, 1
"""MPI's tags of a message and of the array that follows it."""


class Mail(NamedTuple):
    """A message that has come, with the rank that sent it."""

    source: int
    message: Message
    payload: np.ndarray | None


class Post:
    """Sends and receives one rank's messages, for one thread: to itself by a queue, to other ranks by MPI.

    From one rank to another messages without arrays arrive in the order sent; later ones may pass one with an array.

    Args:
        messages: a communicator's point-to-point messages that nobody else uses; None for one rank.
        dtype: of all arrays.
        fault_tolerant: where ranks may be lost: has these ``messages``. Those for or from a lost rank are dropped.
    """

    def __init__(self, messages: Any, rank: int, dtype: np.dtype,
                 fault_tolerant: FaultTolerantMessages | None = None) -> None:
        self._messages, self._rank, self._dtype, self._fault_tolerant = messages, rank, dtype, fault_tolerant
        self._dropped: tuple[type[Exception], ...] = (RankLost,) if fault_tolerant is not None else ()
        self.lost: tuple[int, ...] = ()
        self._here: deque[Mail] = deque()
        self._sending: deque[Any] = deque()
        self._receiving: list[tuple[Any, Mail]] = []
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
            self._sending.append(self._messages.isend(head, dest, HEAD))
            self.n_bytes += head.nbytes
            self.n_messages += 1
            if payload is not None:
                self._sending.append(self._messages.isend(payload, dest, ARRAY))
                self.n_bytes += payload.nbytes

    def receive(self) -> Iterator[Mail]:
        """Yields the messages that have come, without waiting."""
        while self._here:
            yield self._here.popleft()
        if self._messages is None:
            return
        with suppress(*self._dropped):
            yield from self._heads()
        for entry in list(self._receiving):
            if (is_done := self._is_done(entry[0])) is not False:
                self._receiving.remove(entry)
            if is_done:
                yield entry[1]
        while self._sending and self._is_done(self._sending[0]) is not False:
            self._sending.popleft()
        if self._fault_tolerant is not None:
            self.lost = self._fault_tolerant.lost()

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
            pending = self._messages.irecv(array, found.source, ARRAY)
            self._receiving.append((pending, Mail(found.source, message, array)))

    def _is_done(self, pending: Any) -> bool | None:
        """Whether a message is complete; None if a lost rank has made it fail."""
        try:
            return pending.test() is not None
        except self._dropped:
            return None

    @property
    def is_busy(self) -> bool:
        """Whether messages of this rank are still leaving, or arrays coming."""
        return bool(self._sending or self._receiving)


Send = Callable[[int, m.Message, np.ndarray | None], None]
Bundle = tuple[int, ...]


class Host:
    """Serves a shard's vectors: runs commands, answers readers, and adds what replicas push. No threads, no MPI.

    A pushed sum is staged until the coordinator commits it. So what a rank has pushed to only some of the shards when
    it dies counts on none.
    """

    def __init__(self, shard: VectorShard, send: Send) -> None:
        self._shard, self._send = shard, send
        self._published = m.Publish(-1, "", "", False)
        self._readers: list[tuple[int, int]] = []  # rank and step
        self._ahead_of_publish: list[tuple[int, m.Push, np.ndarray | None]] = []
        self._staged: dict[tuple[int, Bundle], np.ndarray | None] = {}
        self._committed: dict[int, np.ndarray | None] = {}  # by portion, where they are added in order
        self._n_added = 0
        self.is_closed = False

    def handle(self, source: int, message: m.Message, payload: np.ndarray | None) -> None:
        if isinstance(message, m.Do):
            self._do(source, message)
        elif isinstance(message, m.Publish):
            self._publish(message)
        elif isinstance(message, m.Read):
            self._readers.append((source, message.step))
            self._serve()
        elif isinstance(message, m.Push):
            self._stage(source, message, payload)
        elif isinstance(message, m.Commit):
            self._commit(message)
        elif isinstance(message, m.Load):
            if payload is not None:
                self._shard.out(message.vector)[:] = payload
            self._send(source, m.Loaded(message.vector), None)
        elif isinstance(message, m.Give):
            self._give(source, -1, message.vector)
        elif isinstance(message, m.Close):
            self.is_closed = True

    def _do(self, source: int, message: m.Do) -> None:
        found = [tuple(answer) for command in message.commands
                 for answer in [self._shard.run(command)] if isinstance(command, REDUCING)]
        if message.ask >= 0:
            self._send(source, m.Answer(message.ask, tuple(found)), None)

    def _publish(self, message: m.Publish) -> None:
        self._published, self._n_added = message, 0
        self._staged, self._committed = {}, {}
        if message.into:
            self._shard.out(message.into)[:] = 0
        self._serve()
        early, self._ahead_of_publish = self._ahead_of_publish, []
        for push in early:
            self._stage(*push)

    def _serve(self) -> None:
        """Answer those who wait for a step that is published now, or over."""
        waiting = []
        for rank, step in self._readers:
            if step <= self._published.step:
                self._give(rank, self._published.step, self._published.vector)
            else:
                waiting.append((rank, step))
        self._readers = waiting

    def _give(self, rank: int, step: int, vector: str) -> None:
        values = self._shard.out(vector)
        message = m.Values(step, self._shard.interval.start, len(values))
        self._send(rank, message, values.copy() if len(values) else None)

    def _stage(self, source: int, message: m.Push, payload: np.ndarray | None) -> None:
        if message.step > self._published.step:  # it has come before the step was published
            self._ahead_of_publish.append((source, message, payload))
        elif message.step == self._published.step:
            self._staged[source, message.bundle] = payload
            self._send(0, m.Staged(message.step, source, message.bundle), None)

    def _commit(self, message: m.Commit) -> None:
        payload = self._staged.pop((message.replica, message.bundle))
        if not self._published.in_order:
            self._add(payload)
            return
        (portion,) = message.bundle
        self._committed[portion] = payload
        while self._n_added in self._committed:
            self._add(self._committed.pop(self._n_added))
            self._n_added += 1

    def _add(self, payload: np.ndarray | None) -> None:
        if payload is not None:
            into = self._shard.out(self._published.into)
            into += payload
