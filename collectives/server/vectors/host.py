"""One rank's shard of all vectors: what it does with each message."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from scaffe.collectives.server.vectors import messages as m
from scaffe.collectives.server.vectors.commands import REDUCING
from scaffe.collectives.server.vectors.shard import VectorShard

Send = Callable[[int, m.Message, np.ndarray | None], None]
Bundle = tuple[int, ...]


class Host:
    """Carries commands out, answers readers, and adds up what replicas push. No threads, no MPI.

    A pushed sum is kept apart until the coordinator commits it: so what a rank has sent to only some of the shards when
    it dies counts on none.

    Args:
        shard: the vectors.
        send: sends a message, perhaps with an array, to a rank.

    Attributes:
        is_closed: whether the last message has come.
    """

    def __init__(self, shard: VectorShard, send: Send) -> None:
        self._shard, self._send = shard, send
        self._published = m.Publish(-1, "", "", False)
        self._readers: list[tuple[int, int]] = []  # rank and step
        self._early: list[tuple[int, m.Push, np.ndarray | None]] = []
        self._staged: dict[tuple[int, Bundle], np.ndarray | None] = {}
        self._committed: dict[int, np.ndarray | None] = {}  # by portion, where they are added in order
        self._n_added = 0
        self.is_closed = False

    def handle(self, source: int, message: m.Message, payload: np.ndarray | None) -> None:
        """Act on a message."""
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
        early, self._early = self._early, []
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
        if message.step > self._published.step:  # it has come before the coordinator's word
            self._early.append((source, message, payload))
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
