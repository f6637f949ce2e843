"""ParameterServer, the public interface of the parameter server."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.launch import grants_threads
from scaffe.collectives.server.build import Running
from scaffe.collectives.server.failure_detector import FailureDetector
from scaffe.collectives.server.shards.shard import Add, Rule
from scaffe.collectives.server.tables.roles import (
    RecoverySource,
    Roles,
    check_batches,
    check_same,
    declared,
    recovery_sources,
)
from scaffe.collectives.server.tables.table import Keys, Table
from scaffe.collectives.server.workers.batch import Batch, Operation
from scaffe.collectives.server.workers.local import LocalBatch
from scaffe.collectives.server.workers.transfer_threads import TICK_SECONDS
from scaffe.collectives.server.workers.worker_side import WorkerSide


class ParameterServer:
    """Tables on shards, under bounded staleness (GeePS: Cui et al., EuroSys 2016, sections 3.2 and 4.2).

    Every rank creates one with the same arguments, declares the same tables and the same number of batches in the same
    order, and calls ``start``. A worker ends each iteration with ``clock``. Only one thread per rank may use it.

    Args:
        communicator: the ranks. Those of one node share memory; a node pushes to others, and pulls from them, once for
            all its workers.
        slack: how many iterations a worker may be ahead of the slowest. 0 is bulk synchronous: results are bitwise
            independent of timing. math.inf is fully asynchronous.
        servers: how many ranks hold shards only; with 0 every rank is a worker and holds a shard.
        placement: which ranks these are: "last", or "spread" for the last ranks of every node in turn.
        keeps_copies: whether another node keeps a second copy of each shard's histories, for
            ``recovery_sources``. It is at most ``copies.MOST_ROUNDS`` rounds of updates old.
        folder: on a local disk of every node, for a file with tables, histories and updates, of which only what is
            worked on is in memory; empty: all of it is.

    Attributes:
        is_worker: whether this rank is a worker.
        n_workers: number of workers; unless servers are spread, they are the first ranks.
        meanwhile: called several times a second while this worker waits; None for nothing.

    Raises:
        CommError: on every rank, a slack below 0, no rank left to work, no such placement, or several nodes where MPI
            does not let threads send.
    """

    def __init__(self, communicator: Communicator, slack: float = 0, servers: int = 0, placement: str = "last",
                 keeps_copies: bool = False, folder: str = "") -> None:
        if not slack >= 0 or (not math.isinf(slack) and slack != int(slack)):
            raise CommError(f"slack must be a whole number from 0 on, or inf; got {slack}", everywhere=True)
        if communicator.topology.n_nodes > 1 and not grants_threads():
            raise CommError("a parameter server on several nodes needs MPI_THREAD_MULTIPLE", everywhere=True)
        self.communicator, self.slack, self._folder = communicator, slack, folder
        self._roles = Roles.of(communicator.topology, servers, placement, keeps_copies)
        self.n_workers = len(self._roles.workers)
        self.is_worker = communicator.rank in self._roles.workers
        self._rules: dict[Table, Rule] = {}
        self._failures = FailureDetector(communicator, self._roles)
        self._mine = WorkerSide(slack, self._while_waiting, self._failures.fail)
        self._running: Running | None = None
        self.meanwhile: Callable[[], None] | None = None

    def table(self, name: str, n_rows: int, row_elems: int, rule: Rule | None = None, dtype: str = "float32",
              local: bool = False, memory: str = "host") -> Table:
        """Declare a table, before ``start``.

        Args:
            name: unique among the tables.
            n_rows: number of rows; the keys are 0 to n_rows - 1.
            row_elems: elements in a row.
            rule: how an update changes the values; ``Add`` by default.
            dtype: "float32" or "float64".
            local: the rows are this worker's own: no shard holds them, and other ranks need not declare them. They
                start at 0; ``local_batch`` takes them.
            memory: where a local table is: "host", or "device" for the current device's memory.

        Raises:
            CommError: the name is taken, a length is below 1, the dtype is another, a local table is given a rule, or
                memory that there is not.
        """
        _refuse(self._running is not None, "declares a table after start")
        _refuse(name in [table.name for table in [*self._rules, *self._mine.local]], f"declares table {name!r} twice")
        _refuse(local and rule is not None, f"declares local table {name!r} with a rule, which only shards apply")
        _refuse(not local and memory != "host", f"declares table {name!r} in {memory} memory; only local ones may be")
        table = Table(name, n_rows, row_elems, dtype, getattr(rule, "merges", True))
        if local:
            self._mine.local_table(table, memory)
        else:
            self._rules[table] = rule or Add()
        return table

    def batch(self, table: Table, keys: Keys, memory: str = "host") -> Batch:
        """Declare rows that this worker reads and updates together, before ``start``.

        Args:
            table: the rows' table.
            keys: the rows, in the order of the batch's buffers, without repeats; they may differ between workers.
                A range or slice of neighbours costs nothing, however long it is.
            memory: where the batch's buffers are: "host", or "device" for the current device's memory at ``start``.

        Raises:
            CommError: called after ``start``, a key that is not in the table, a table that was not declared here, or
                memory that there is not.
        """
        _refuse(self._running is not None, "declares a batch after start")
        _refuse(table not in self._rules, f"has no table {table.name!r} that is shared")
        _refuse(bool(self._folder) and memory != "host", f"with tables in a file has no batch in {memory} memory")
        return self._mine.batch(table, keys, memory)

    def local_batch(self, table: Table, keys: Keys) -> LocalBatch:
        """Declare rows of a local table that this worker reads and changes together, before ``start``.

        Args:
            table: the rows' table.
            keys: the rows, as for ``batch``.

        Raises:
            CommError: called after ``start``, a key that is not in the table, or a table that is not local.
        """
        _refuse(self._running is not None, "declares a batch after start")
        _refuse(table not in self._mine.local, f"has no table {table.name!r} that is local")
        return self._mine.local_batch(table, keys)

    def virtual_iteration(self) -> AbstractContextManager[None]:
        """Within the block, before ``start``, the calls of an iteration are checked and noted, and nothing is done.

        Buffers are given out, but what they hold means nothing. From the calls come ``sequence`` and what ``start``
        asks the shards for ahead; without a virtual iteration they come from the first real one.

        Raises:
            CommError: after ``start``.
        """
        _refuse(self._running is not None, "has its virtual iteration after start")
        return self._mine.virtual_iteration()

    def start(self, values: Mapping[str, np.ndarray] | None = None) -> None:
        """Allocate the shared memory and start the shards. Collective: every rank calls it once.

        Args:
            values: initial values by table name; only rank 0's count. Tables not named here start at 0.

        Raises:
            CommError: on every rank, if tables or batches differ between ranks, values do not fit their table, or
                memory, or room on a disk, cannot be had.
        """
        _refuse(self._running is not None, "starts twice")
        ranks = self.communicator
        check_same(ranks.allgather_objects(declared(self.slack, self._roles, list(self._rules), self._folder)))
        own = [batch.index for batch in self._mine.batches] if self.is_worker else None
        everyone = [indexes for indexes in ranks.allgather_objects(own) if indexes is not None]
        check_batches(everyone)
        self._running = running = Running(ranks, self._roles, self.slack, self._rules, everyone, self._folder,
                                          self._failures.fail)
        running.start(ranks, values or {}, self._failures)
        if self.is_worker:
            self._mine.start(running.store, self._roles.workers.index(ranks.rank), running.mailboxes())

    def clock(self) -> None:
        """End this worker's iteration. Raises CommError if the caller still holds a read or update buffer, or a disk
        has failed to write tables, and RankLost where a rank is known to be lost."""
        self.communicator.check_lost()
        n_ended = self._mine.clock()
        if self._running is not None:  # else the iteration is a virtual one
            self._running.store.clocks[self._roles.workers.index(self.communicator.rank)] = n_ended
            self._running.store.tier.look()
            self.rest()

    def check_disks(self) -> None:
        """Raise CommError, on every rank, where a disk has failed to write tables in a file. Collective; a barrier.

        Without an error all that was read before is right.
        """
        if found := next(filter(None, self.communicator.allgather_objects(self._started().store.tier.fault())), ""):
            raise CommError(found, everywhere=True)

    def rest(self) -> None:
        """Let tables in a file leave this rank's memory as far as they are not in use; ``clock`` does so, too."""
        self._started().store.tier.release_all()

    def leave(self) -> None:
        """Stop taking part as a worker: it makes no more updates, and nobody waits for it any longer."""
        self._mine.working().leave()

    def close(self) -> None:
        """Shut down. Collective: every rank calls it once; all updates have been applied when it returns."""
        running = self._started()
        if self.is_worker:
            self.leave()
        for thread in (running.service, running.gateway):
            started = time.monotonic()
            while thread is not None and not thread.join(TICK_SECONDS):
                self._while_waiting("all workers to leave", time.monotonic() - started)
        self.communicator.barrier()
        if self._mine.worker is not None:
            self._mine.worker.stop()
        if running.others is not None:
            running.others.free()

    def abandon(self) -> None:
        """After RankLost: end this rank's threads. Values and histories stay as they are, for ``recovery_sources``."""
        running = self._running
        for thread in (*((running.service, running.gateway) if running is not None else ()), self._mine.worker):
            if thread is not None:
                thread.stop()

    def recovery_sources(self, table: Table, left: Collection[int]) -> list[RecoverySource]:
        """After RankLost: where the newest values of a table's parts are; see ``roles.recovery_sources``.

        Args:
            table: one that is not local.
            left: the ranks that are left; all of them have called ``abandon``.
        """
        return recovery_sources(self._roles, table, left)

    def recovery_values(self, table: Table, shard: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Views of a shard's values and of its histories, or their second copies, as this rank's node has them."""
        store = self._started().store
        start, stop = table.shard(shard, len(self._roles.shards))
        held = store.histories if (shard, table) in store.histories else store.copies
        return store.values[table][start:stop], held.get((shard, table), [])

    def values(self, table: Table) -> np.ndarray:
        """A copy of the whole table, (n_rows, row_elems); after ``close`` it is the result.

        Before, what other nodes' shards hold is as this node's workers have last read it.
        """
        local = self._mine.local.get(table)
        values = self._started().store.values[table] if local is None else local.host_values()
        return values.reshape(table.n_rows, table.row_elems).copy()

    def histories(self, table: Table) -> tuple[int, list[np.ndarray]]:
        """What this rank's shard keeps for a table's rule, to save or to restore while no update is under way.

        Returns:
            the index in the table of the first element that the shard holds, and the histories themselves, each with
            a value for every element from there on. Without a shard: 0 and none.
        """
        part = None if self._running is None else self._running.parts.get(table)
        return (part.start, part.histories) if part is not None else (0, [])

    def copies(self, table: Table) -> list[tuple[int, list[np.ndarray]]]:
        """As ``histories``, of the second copies that this rank receives; to be restored together with those."""
        roles, store, rank = self._roles, self._started().store, self.communicator.rank
        return [(table.shard(shard, len(roles.shards))[0], store.copies[shard, table])
                for shard in roles.copies_on(roles.topology.node_of_rank[rank]) if roles.copier(shard) == rank]

    @property
    def taken(self) -> tuple[int, int] | None:
        """How many reads and updates this rank's shard has taken so far; None without a shard."""
        service = None if self._running is None else self._running.service
        return None if service is None else (service.n_reads, service.n_updates)

    @property
    def sequence(self) -> tuple[Operation, ...]:
        """This worker's calls in one iteration, as noted in the virtual or the first one; empty before its end."""
        return self._mine.recorder.sequence

    @property
    def staleness(self) -> list[int]:
        """For each read of this worker so far, how many iterations the slowest worker was behind it."""
        return self._mine.working().client.staleness

    # --- inside

    def _started(self) -> Running:
        if self._running is None:
            raise CommError("a parameter server is used before start")
        return self._running

    def _while_waiting(self, what: str, waited: float) -> None:
        """Calls ``meanwhile``, and raises as ``FailureDetector.check`` does."""
        if self.meanwhile is not None:
            self.meanwhile()
        self._failures.check(what, waited)


def _refuse(is_wrong: bool, what: str) -> None:
    if is_wrong:
        raise CommError(f"a parameter server {what}")
