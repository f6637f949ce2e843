"""ParameterServer, the public interface of the parameter server."""

from __future__ import annotations

import math
import os
import sys
import traceback
from collections.abc import Mapping, Sequence

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.server.batch import Batch
from scaffe.collectives.server.client import Client
from scaffe.collectives.server.keeper import Keeper
from scaffe.collectives.server.layout import Roles, joint_batches
from scaffe.collectives.server.rules import Add, Rule
from scaffe.collectives.server.service import Service
from scaffe.collectives.server.shard import Part, all_steps
from scaffe.collectives.server.store import Store
from scaffe.collectives.server.table import Index, Table
from scaffe.collectives.server.worker import Worker
from scaffe.collectives.shared.node import alive


class ParameterServer:
    """Tables on shards, under bounded staleness (GeePS: Cui et al., EuroSys 2016, sections 3.2 and 4.2).

    Every rank creates one with the same arguments, declares the same tables and the same number of batches in the same
    order, and calls ``start``. A worker ends each iteration with ``clock``. Only one thread per rank may use it, and
    all ranks must be on one node.

    Args:
        communicator: the ranks.
        slack: how many iterations a worker may be ahead of the slowest. 0 is bulk synchronous: results are bitwise
            independent of timing. math.inf is fully asynchronous.
        servers: how many of the last ranks hold shards only; with 0 every rank is a worker and holds a shard.

    Attributes:
        is_worker: whether this rank is a worker.
        n_workers: number of workers; they are the first ranks.

    Raises:
        CommError: on every rank, a slack below 0, no rank left to work, or ranks of several nodes.
    """

    def __init__(self, communicator: Communicator, slack: float = 0, servers: int = 0) -> None:
        if not slack >= 0 or (not math.isinf(slack) and slack != int(slack)):
            raise CommError(f"slack must be a whole number from 0 on, or inf; got {slack}", everywhere=True)
        if communicator.topology.n_nodes > 1:
            raise CommError("a parameter server needs its ranks on one node, these are on "
                            f"{communicator.topology.n_nodes}", everywhere=True)
        self.communicator, self.slack = communicator, slack
        self._roles = Roles.of(communicator.n_ranks, servers)
        self.n_workers = len(self._roles.workers)
        self.is_worker = communicator.rank in self._roles.workers
        self._rules: dict[Table, Rule] = {}
        self._batches: list[Batch] = []
        self._store: Store | None = None
        self._service: Service | None = None
        self._worker: Worker | None = None
        self._fault: BaseException | None = None

    def table(self, name: str, n_rows: int, row_elems: int, rule: Rule | None = None, dtype: str = "float32") -> Table:
        """Declare a table, before ``start``.

        Args:
            name: unique among the tables.
            n_rows: number of rows; the keys are 0 to n_rows - 1.
            row_elems: elements in a row.
            rule: how an update changes the values; ``Add`` by default.
            dtype: "float32" or "float64".

        Raises:
            CommError: the name is taken, a length is below 1, or the dtype is another.
        """
        _refuse(self._store is not None, "declares a table after start")
        _refuse(name in [table.name for table in self._rules], f"declares table {name!r} twice")
        table = Table(name, n_rows, row_elems, dtype)
        self._rules[table] = rule or Add()
        return table

    def batch(self, table: Table, keys: Sequence[int] | np.ndarray | range) -> Batch:
        """Declare rows that this worker reads and updates together, before ``start``.

        Args:
            table: the rows' table.
            keys: the rows, in the order of the batch's buffers, without repeats; they may differ between workers.

        Raises:
            CommError: called after ``start``, a key that is not in the table, or a table that was not declared here.
        """
        _refuse(self._store is not None, "declares a batch after start")
        _refuse(table not in self._rules, f"has no table {table.name!r}")
        self._batches.append(Batch(len(self._batches), Index(table, keys)))
        return self._batches[-1]

    def start(self, values: Mapping[str, np.ndarray] | None = None) -> None:
        """Allocate the shared memory and start the shards. Collective: every rank calls it once.

        Args:
            values: initial values by table name; only rank 0's count. Tables not named here start at 0.

        Raises:
            CommError: on every rank, if tables or batches differ between ranks, values do not fit their table, or
                memory cannot be allocated.
        """
        _refuse(self._store is not None, "starts twice")
        ranks, tables = self.communicator, list(self._rules)
        ranks.agree((tables, self.slack, self._roles), "a parameter server's tables, slack or servers")
        own = [batch.index for batch in self._batches] if self.is_worker else None
        everyone = [indexes for indexes in ranks.allgather_objects(own) if indexes is not None]
        _check_batches(everyone)
        self._store = store = Store(ranks, tables, everyone, len(self._roles.shards))
        fault = ranks.bcast_object(store.fill(values or {}) if ranks.rank == 0 else "")
        if fault:
            raise CommError(fault, everywhere=True)
        self._pids = ranks.allgather_objects(os.getpid())  # everybody's memory is ready from here on
        if ranks.rank in self._roles.shards:
            self._service = self._keep(store, everyone)
        if self.is_worker:
            self._worker = self._work(store)

    def clock(self) -> None:
        """End this worker's iteration. Raises CommError if the caller still holds a read or update buffer."""
        worker = self._working()
        worker.send(worker.client.advance())
        self._started().clocks[worker.client.worker] = worker.client.clock

    def leave(self) -> None:
        """Stop taking part as a worker: no more updates, and from now on nobody waits for this one."""
        worker = self._working()
        worker.send(worker.client.leave())

    def close(self) -> None:
        """Shut down. Collective: every rank calls it once; all updates have been applied when it returns."""
        self._started()
        if self._worker is not None:
            self.leave()
        self.communicator.barrier()
        if self._service is not None:
            self._service.stop()
        self.communicator.barrier()

    def values(self, table: Table) -> np.ndarray:
        """A copy of the whole table at this moment, (n_rows, row_elems); after ``close`` it is the result."""
        return self._started().values[table].reshape(table.n_rows, table.row_elems).copy()

    @property
    def staleness(self) -> list[int]:
        """For each read of this worker so far, how many iterations the slowest worker was behind it."""
        return self._working().client.staleness

    # --- inside

    def _started(self) -> Store:
        if self._store is None:
            raise CommError("a parameter server is used before start")
        return self._store

    def _working(self) -> Worker:
        self._started()
        if self._worker is None:
            raise CommError(f"rank {self.communicator.rank} holds a shard of the parameter server and does not work")
        return self._worker

    def _keep(self, store: Store, everyone: list[list[Index]]) -> Service:
        number, n_shards = self._roles.shards.index(self.communicator.rank), len(self._roles.shards)
        parts = {table: Part(store.values[table], *table.shard(number, n_shards), rule)
                 for table, rule in self._rules.items()}
        joint = joint_batches(everyone)
        steps = all_steps(parts, everyone, store.updates, joint)
        keeper = Keeper(self.n_workers, self.slack, joint)
        return Service(number, keeper, steps, store.shard_mail[number], store.worker_mail, self._fail)

    def _work(self, store: Store) -> Worker:
        number, n_shards = self._roles.workers.index(self.communicator.rank), len(self._roles.shards)
        client = Client(number, [batch.index.shards(n_shards) for batch in self._batches], n_shards, self.slack)
        worker = Worker(client, store.worker_mail[number], store.shard_mail, self._look_around, self.slack)
        for batch, update in zip(self._batches, store.updates[number], strict=True):
            batch.bind(worker, store.values[batch.index.table], update)
        return worker

    def _look_around(self, what: str, waited: float) -> None:
        """Raise CommError if the wait for ``what`` cannot succeed, or has lasted too long: ``waited`` seconds."""
        rank = self.communicator.rank
        if self._fault is not None:
            raise CommError(f"rank {rank}'s shard has failed: {self._fault}") from self._fault
        for other, pid in enumerate(self._pids):
            if not alive(pid):
                raise CommError(f"rank {rank} waits for {what}, but rank {other}, process {pid}, is dead")
        if waited > self.communicator.deadline:
            clocks = self._started().clocks
            slowest = int(np.argmin(clocks))
            raise CommError(f"rank {rank} waited {waited:.0f} s for {what}; the slowest is rank "
                            f"{self._roles.workers[slowest]}, in iteration {clocks[slowest]}")

    def _fail(self, error: BaseException) -> None:
        """Runs in the shard's thread. A single rank learns of the error at its next wait; with more ranks the job is
        aborted, because others wait for this shard too."""
        self._fault = error
        if self.communicator.n_ranks > 1:
            traceback.print_exception(error)
            sys.stderr.write(f"rank {self.communicator.rank}: its shard of the parameter server has failed: {error}\n")
            self.communicator.abort(1)


def _refuse(is_wrong: bool, what: str) -> None:
    if is_wrong:
        raise CommError(f"a parameter server {what}")


def _check_batches(everyone: list[list[Index]]) -> None:
    """Raise CommError unless all workers have the same number of batches, each over the same table."""
    for worker, own in enumerate(everyone):
        if [index.table for index in own] != [index.table for index in everyone[0]]:
            raise CommError(f"workers' batches differ: worker 0's are of tables {_named(everyone[0])}, "
                            f"worker {worker}'s of {_named(own)}", everywhere=True)


def _named(batches: list[Index]) -> str:
    return ", ".join(index.table.name for index in batches) or "none"
