"""A rank as a worker: it declares batches and local tables, and runs and records iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.streams import Streams
from scaffe.collectives.errors import CommError
from scaffe.collectives.server.memory.common import InMemory
from scaffe.collectives.server.memory.store import Store
from scaffe.collectives.server.protocol.client import Client
from scaffe.collectives.server.protocol.mailbox import Mailbox, mailbox_bytes
from scaffe.collectives.server.tables.table import Index, Keys, Table
from scaffe.collectives.server.workers.batch import Batch, Recorder, reads_ahead
from scaffe.collectives.server.workers.buffers import rows_of, update_of
from scaffe.collectives.server.workers.local import LocalBatch, LocalTable
from scaffe.collectives.server.workers.transfer_threads import Inbox, Outbox, Pusher, inbox_of
from scaffe.collectives.server.workers.worker import Worker


class WorkerSide:
    """The worker's part of a ParameterServer. ``recorder``: notes the calls of the virtual or the first iteration;
    ``worker``: the running one; None before ``start``, but for a virtual iteration."""

    def __init__(self, slack: float, look_around: Callable[[str, float], None],
                 fail: Callable[[BaseException], None]) -> None:
        self._slack, self._look_around, self._fail = slack, look_around, fail
        self.batches: list[Batch] = []
        self.local: dict[Table, LocalTable] = {}
        self._local_batches: list[LocalBatch] = []
        self.recorder = Recorder()
        self.worker: Worker | None = None

    def batch(self, table: Table, keys: Keys, memory: str) -> Batch:
        """Declare a batch of a shared table. Raises CommError as Index does, and where there is no such memory."""
        _must_be_memory(table, memory)
        index, positions = Index(table, keys), None
        if memory == "device":
            device.load()
            index, positions = index.ascending()
        self.batches.append(Batch(len(self.batches), index, self.recorder, memory, positions))
        return self.batches[-1]

    def local_table(self, table: Table, memory: str) -> None:
        """Allocate a local table. Raises CommError where there is no such memory."""
        _must_be_memory(table, memory)
        self.local[table] = LocalTable(table, memory)

    def local_batch(self, table: Table, keys: Keys) -> LocalBatch:
        """Declare a batch of a local table. Raises CommError as Index does."""
        self._local_batches.append(LocalBatch(len(self._local_batches), Index(table, keys), self.recorder))
        return self._local_batches[-1]

    @contextmanager
    def virtual_iteration(self) -> Iterator[None]:
        """See ParameterServer: a worker without shards checks the calls, on buffers that mean nothing."""
        client = self._client(0, [() for _ in self.batches], 0)
        inbox = Inbox(client, Mailbox(np.zeros(mailbox_bytes(2), np.uint8), 2), {})
        self.worker = Worker(client, inbox, {}, self._look_around)
        streams, tier = self._streams(), InMemory()
        for batch in self.batches:
            rows, update = (np.empty(batch.index.n_elems, batch.index.table.dtype) for _ in range(2))
            batch.bind(self.worker, rows_of(rows, batch.index, 1, streams[batch.memory], batch.positions, tier),
                       update_of(update, batch.index, streams[batch.memory], batch.positions), tier)
        self._bind_local({table: where.like() for table, where in self.local.items()})
        self.recorder.begin(now=lambda: 0.0)
        try:
            yield
            self.recorder.end()
        finally:
            self.worker = None
            for batch in self.batches:
                batch.unbind()
            for local in self._local_batches:
                local.unbind()

    def start(self, store: Store, number: int, shards: Mapping[int, Mailbox]) -> None:
        """Begin to work: ask for what is known to be read, and note the calls unless a virtual iteration was.
        ``shards``: by number, the mailboxes of the shards, or of who stands for them on this node."""
        n_shards = len(shards)
        client = self._client(number, [batch.index.shards(n_shards) for batch in self.batches], n_shards)
        streams = self._streams()
        rows = [rows_of(store.values[batch.index.table], batch.index, self._slack, streams[batch.memory],
                        batch.positions, store.tier) for batch in self.batches]
        copied = {batch: kind for batch, kind in enumerate(rows) if kind.is_copied}
        mail = store.worker_mail[number]
        outbox_of = partial(Pusher, name=f"scaffe-pusher-{number}", fail=self._fail) if streams["device"] else Outbox
        self.worker = Worker(client, inbox_of(client, mail, copied, self._fail), shards, self._look_around, outbox_of)
        for batch, kind, update in zip(self.batches, rows, store.updates[number], strict=True):
            batch.bind(self.worker, kind, update_of(update, batch.index, streams[batch.memory], batch.positions),
                       store.tier)
        self._bind_local(self.local)
        self.worker.prefetch(reads_ahead(self.recorder.sequence))
        self.recorder.begin()

    def working(self) -> Worker:
        if self.worker is None:
            raise CommError("a parameter server is used before start, or on a rank that only holds a shard")
        return self.worker

    def clock(self) -> int:
        """End the iteration. Returns how many have ended. Raises CommError while a buffer is given out."""
        self.working().clock()
        self.recorder.end()
        return self.working().client.clock

    def _streams(self) -> dict[str, Streams | None]:
        """By memory, the streams of the current device, if any batch is there."""
        return {"host": None, "device": Streams() if "device" in [batch.memory for batch in self.batches] else None}

    def _client(self, number: int, shards: Sequence[tuple[int, ...]], n_shards: int) -> Client:
        names = [f"{kind}batch {batch.number} of table {batch.index.table.name!r}"
                 for kind, batches in (("", self.batches), ("local ", self._local_batches)) for batch in batches]
        return Client(number, shards, n_shards, self._slack, len(self._local_batches), names)

    def _bind_local(self, tables: Mapping[Table, LocalTable]) -> None:
        for state, batch in enumerate(self._local_batches, len(self.batches)):
            batch.bind(self.working(), state, tables[batch.index.table])


def _must_be_memory(table: Table, memory: str) -> None:
    if memory not in ("host", "device"):
        raise CommError(f"table {table.name!r}: memory must be host or device, got {memory!r}")
