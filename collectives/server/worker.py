"""A worker's communication: sends the messages that its client produces and waits for the shards' answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from scaffe.collectives.server.client import Client
from scaffe.collectives.server.codec import N_NUMBERS, decode, encode
from scaffe.collectives.server.mailbox import Mailbox
from scaffe.collectives.server.messages import Ready, Release, ToShard

TICK_SECONDS = 0.2


class Worker:
    """One running worker; only one thread may use it.

    Args:
        client: its state machine.
        mail: its own mailbox.
        shards: the shards' mailboxes.
        look_around: called from time to time during a wait, with what is waited for and the seconds waited so far;
            raises CommError if the wait cannot succeed.
        slack: the server's.
    """

    def __init__(self, client: Client, mail: Mailbox, shards: Sequence[Mailbox],
                 look_around: Callable[[str, float], None], slack: float) -> None:
        self.client, self.slack = client, slack
        self._mail, self._shards, self._look_around = mail, shards, look_around
        self._numbers = np.empty(N_NUMBERS, np.int64)

    def read(self, batch: int, what: str) -> None:
        """Ask for a batch's rows and wait until they may be read. ``what`` describes the wait in errors."""
        self.client.begin_read(batch)
        self.send(self.client.ask(batch))
        self._wait(lambda: self.client.is_ready(batch), what)
        self.client.opened_read(batch)

    def pre_update(self, batch: int, what: str) -> None:
        """Wait until a batch's update buffer may be reused. ``what`` describes the wait in errors."""
        self.client.begin_update(batch)
        self._wait(lambda: self.client.is_free(batch), what)
        self.client.opened_update(batch)

    def send(self, messages: Sequence[tuple[int, ToShard]]) -> None:
        """Put messages into shards' mailboxes."""
        started = time.monotonic()
        for shard, message in messages:
            numbers = encode(message, self.client.worker)
            self._shards[shard].put(numbers, lambda: self._look_around("room in a mailbox", time.monotonic() - started))

    def _wait(self, is_there: Callable[[], bool], what: str) -> None:
        started = time.monotonic()
        while not is_there():
            if not self._mail.take(self._numbers, TICK_SECONDS):
                self._look_around(what, time.monotonic() - started)
                continue
            shard, message = decode(self._numbers)
            if isinstance(message, (Ready, Release)):
                self.client.handle(shard, message)
