"""Sends and receives a worker's messages, in its own thread or in threads beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

import numpy as np

from scaffe.collectives.server.protocol.client import Client
from scaffe.collectives.server.protocol.mailbox import Mailbox
from scaffe.collectives.server.protocol.messages import N_NUMBERS, Ready, Release, ToShard, decode, encode
from scaffe.collectives.server.workers.buffers import Rows
from scaffe.threads import Thread

TICK_SECONDS = 0.2
AHEAD_BYTES = 1 << 20
"""A worker with a batch of this length has a puller: less is copied sooner than a thread wakes."""


class Inbox:
    """Receives messages and gathers rows while the worker waits. For batches where little is copied. ``rows``: what
    must be gathered before a read, by batch."""

    def __init__(self, client: Client, mail: Mailbox, rows: Mapping[int, Rows]) -> None:
        self.lock = threading.Condition()
        self._client, self._mail, self._rows = client, mail, rows
        self._gathered = dict.fromkeys(rows, -1)  # by batch, the question whose answer lies in its buffer
        self._numbers = np.empty(N_NUMBERS, np.int64)

    def wait_for_rows(self, batch: int, waiting: Callable[[], None]) -> None:
        """Wait until a batch's rows may be read and are gathered; ``waiting`` is called now and then meanwhile."""
        self._wait(lambda: self._client.is_ready(batch), waiting)
        if self._gathered.get(batch) not in (None, self._client.question(batch)):
            self._rows[batch].gather()
            self._gathered[batch] = self._client.question(batch)

    def wait_for_buffer(self, batch: int, waiting: Callable[[], None]) -> None:
        """Wait until a batch's update buffer may be given out; ``waiting`` is called now and then meanwhile."""
        self._wait(lambda: self._client.is_free(batch), waiting)

    def poll(self) -> None:
        """Take the messages that have come, without waiting for any."""
        while self._take(0):
            pass

    def stop(self) -> None:
        """There is no thread to end."""

    def _wait(self, is_there: Callable[[], bool], waiting: Callable[[], None]) -> None:
        while not is_there():
            if not self._take(TICK_SECONDS):
                waiting()

    def _take(self, seconds: float) -> bool:
        """Take one message, if one comes in time. Returns whether one came."""
        if not self._mail.take(self._numbers, seconds):
            return False
        shard, _, message = decode(self._numbers)
        if isinstance(message, (Ready, Release)):
            with self.lock:
                self._client.handle(shard, message)
        return True


class Puller(Inbox):
    """Takes messages in a thread of its own, and gathers rows there as soon as they may be read: before they are.

    Rows are gathered in the order in which they were asked for. The worker's thread gathers rows itself that it wants
    before their turn. The thread sleeps while nothing comes.
    """

    def __init__(self, client: Client, mail: Mailbox, rows: Mapping[int, Rows],
                 fail: Callable[[BaseException], None]) -> None:
        super().__init__(client, mail, rows)
        self._fail, self._is_stopped = fail, False
        self._busy: set[int] = set()  # batches that a thread gathers now
        self._thread = Thread(self._run, f"scaffe-puller-{client.worker}")
        self._thread.start()

    def wait_for_rows(self, batch: int, waiting: Callable[[], None]) -> None:
        self._wait(lambda: self._client.is_ready(batch), waiting)
        while batch in self._rows:
            with self.lock:
                question = self._client.question(batch)
                if self._gathered[batch] == question:
                    return
                is_mine = batch not in self._busy
                self._busy.add(batch)
            if is_mine:
                self._gather(batch, question)
            else:
                self._wait(lambda: batch not in self._busy, waiting)

    def poll(self) -> None:
        """The thread takes what comes."""

    def stop(self) -> None:
        self._is_stopped = True
        self._mail.put(encode(None, 0), lambda: None)
        self._thread.join()

    def _wait(self, is_there: Callable[[], bool], waiting: Callable[[], None]) -> None:
        while True:
            with self.lock:
                if self.lock.wait_for(is_there, TICK_SECONDS):
                    return
            waiting()

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                if self._take(TICK_SECONDS):
                    with self.lock:
                        self.lock.notify_all()
                    while (found := self._next()) is not None:
                        self._gather(*found)
        except BaseException as error:
            self._fail(error)

    def _next(self) -> tuple[int, int] | None:
        """The next batch asked for ahead that may be read, and the question that its rows answer."""
        with self.lock:
            for batch in self._client.prefetched():
                question = self._client.question(batch)
                if batch in self._rows and batch not in self._busy and self._gathered[batch] != question:
                    self._busy.add(batch)
                    return batch, question
        return None

    def _gather(self, batch: int, question: int) -> None:
        self._rows[batch].gather()
        with self.lock:
            self._gathered[batch] = question
            self._busy.discard(batch)
            self.lock.notify_all()


def inbox_of(client: Client, mail: Mailbox, rows: Mapping[int, Rows], fail: Callable[[BaseException], None]) -> Inbox:
    """Makes a Puller where there is much to gather, else an Inbox."""
    if any(of.buffer.nbytes >= AHEAD_BYTES for of in rows.values()):
        return Puller(client, mail, rows, fail)
    return Inbox(client, mail, rows)


PUSH_TICK_SECONDS = 0.2

Messages = Sequence[tuple[int, ToShard]]
"""(shard, message) pairs, in the order in which they are sent."""


class Outbox:
    """Sends at once. For updates in host memory. ``send``: sends messages, and calls its second argument now and then
    while there is no room for them."""

    def __init__(self, send: Callable[[Messages, Callable[[], None]], None]) -> None:
        self._send = send

    def put(self, messages: Messages, waiting: Callable[[], None], fetch: Callable[[], None] | None = None) -> None:
        if fetch is not None:
            fetch()
        self._send(messages, waiting)

    def flush(self, waiting: Callable[[], None]) -> None:
        """Wait until everything is sent; ``waiting`` is called now and then meanwhile."""

    def stop(self) -> None:
        """There is no thread to end."""


class Pusher(Outbox):
    """Sends in a thread of its own, in the order given, so that ``fetch`` may wait while the worker computes."""

    def __init__(self, send: Callable[[Messages, Callable[[], None]], None], name: str,
                 fail: Callable[[BaseException], None]) -> None:
        super().__init__(send)
        self._fail, self._jobs = fail, SimpleQueue[Callable[[], bool]]()
        self._thread = Thread(self._run, name)
        self._thread.start()

    def put(self, messages: Messages, waiting: Callable[[], None], fetch: Callable[[], None] | None = None) -> None:
        def job() -> bool:
            super(Pusher, self).put(messages, lambda: None, fetch)
            return True
        self._jobs.put(job)

    def flush(self, waiting: Callable[[], None]) -> None:
        is_done = threading.Event()

        def job() -> bool:
            is_done.set()
            return True
        self._jobs.put(job)
        while not is_done.wait(PUSH_TICK_SECONDS):
            waiting()

    def stop(self) -> None:
        self._jobs.put(lambda: False)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._jobs.get()():
                pass
        except BaseException as error:
            self._fail(error)
