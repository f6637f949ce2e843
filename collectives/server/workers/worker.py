"""A worker's communication: sends its client's messages and waits for the shards' answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from scaffe.collectives.runtime.freed_communicator import ForkAware
from scaffe.collectives.server.protocol.client import Client
from scaffe.collectives.server.protocol.mailbox import Mailbox
from scaffe.collectives.server.protocol.messages import Settings, encode
from scaffe.collectives.server.workers.buffers import Updates
from scaffe.collectives.server.workers.transfer_threads import Inbox, Messages, Outbox

ROOM = "room in a mailbox"
Send = Callable[[Messages, Callable[[], None]], None]


class Worker(ForkAware):
    """One running worker; only one thread may use it.

    Args:
        shards: by number, the mailboxes of the shards, or of who stands for them on this node.
        look_around: called from time to time during a wait, with what is waited for and the seconds waited so far;
            raises CommError if the wait cannot succeed.
    """

    rank_attributes = ("client", "_inbox", "_shards", "_outbox")

    def __init__(self, client: Client, inbox: Inbox, shards: Mapping[int, Mailbox],
                 look_around: Callable[[str, float], None], outbox_of: Callable[[Send], Outbox] = Outbox) -> None:
        self.client, self._inbox, self._shards, self._look_around = client, inbox, shards, look_around
        self._outbox = outbox_of(self._deliver)
        self.invalidate_in_child()

    def read(self, batch: int, what: str, newest: bool = False, prefetched: bool = False) -> None:
        """Ask for a batch's rows and wait until they may be read. ``what`` describes the wait in errors."""
        with self._inbox.lock:
            self.client.begin_read(batch)
            asked = self.client.ask(batch, newest, prefetched)
        self.send(asked)
        self._inbox.wait_for_rows(batch, self._while_waiting(what))
        with self._inbox.lock:
            self.client.opened_read(batch)

    def post_read(self, batch: int) -> None:
        with self._inbox.lock:
            self.client.end_read(batch)

    def pre_update(self, batch: int, what: str) -> None:
        """Wait until a batch's update buffer may be reused. ``what`` describes the wait in errors."""
        with self._inbox.lock:
            self.client.begin_update(batch)
        self._inbox.wait_for_buffer(batch, self._while_waiting(what))
        with self._inbox.lock:
            self.client.opened_update(batch)

    def update(self, batch: int, settings: Settings, update: Updates | None = None) -> None:
        """Tell the shards of a filled update buffer, when it is where they read it. A local one has none."""
        with self._inbox.lock:
            messages = self.client.end_update(batch, settings)
        if update is not None:
            update.give_back()
            self._outbox.put(messages, self._while_waiting(ROOM), update.fetch)

    def clock(self) -> None:
        with self._inbox.lock:
            messages = self.client.advance()
        self.send(messages)

    def prefetch(self, batches: Sequence[int]) -> None:
        with self._inbox.lock:
            messages = self.client.prefetch(batches)
        self.send(messages)

    def is_ready(self, batch: int) -> bool:
        self._inbox.poll()
        with self._inbox.lock:
            return self.client.is_ready(batch)

    def is_free(self, batch: int) -> bool:
        self._inbox.poll()
        with self._inbox.lock:
            return self.client.is_free(batch)

    def leave(self) -> None:
        with self._inbox.lock:
            messages = self.client.leave()
        self.send(messages)
        self._outbox.flush(self._while_waiting("its last messages to be sent"))

    def stop(self) -> None:
        self._outbox.stop()
        self._inbox.stop()

    def send(self, messages: Messages) -> None:
        self._outbox.put(messages, self._while_waiting(ROOM))

    def _deliver(self, messages: Messages, waiting: Callable[[], None]) -> None:
        for shard, message in messages:
            self._shards[shard].put(encode(message, self.client.worker, shard), waiting)

    def _while_waiting(self, what: str) -> Callable[[], None]:
        started = time.monotonic()
        return lambda: self._look_around(what, time.monotonic() - started)
