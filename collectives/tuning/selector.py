"""What a call gets when it leaves algorithm or chunk to us: the tuned table, bounded by what can run here."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import names
from scaffe.collectives.runtime.shared_levels import above, require, spans_nodes
from scaffe.collectives.topology import Topology
from scaffe.collectives.transport import wire
from scaffe.collectives.tuning.table import DEFAULT_TABLE, Choice, Key, Table

TABLE_VARIABLE = "SCAFFE_TABLE"
NETWORK_CHUNK_BYTES = 60 << 10
"""Just below the length (64 KiB with its header) from which Open MPI's TCP asks before it sends: over 1 Gbit/s a
chain of 8 nodes runs at 1.02 times the wire's limit with it, at 1.2 to 1.4 times with chunks of 64 to 256 KiB."""
NODE_CHUNK_BYTES = 256 << 10
PAIR_CHUNK_BYTES = 16 << 20
"""A broadcast between two nodes passes nothing on: fewer messages cost the cores that compute half as much (8 ms of CPU
time for 16 MiB over 1 Gbit/s on both sides together, 14 in chunks of 60 KiB)."""


AUTO, OWN = "auto", "own"
"""Whatever is fastest; and the fastest of our own: MPI's calls look for their messages without a pause, and a helper
thread that looks takes the core of whoever computes (99 % of one, measured; ours take 0.3 to 1.5 %)."""
LIBRARIES = ("mpi", "nccl")
"""Others' own collectives; which of them these ranks have is found out at the first call."""
FEW_ROUNDS_FEW_BYTES = {"reduce": ("B", "C"), "bcast": ("B", "C"), "allreduce": ("D", "R"),
                        "reduce_scatter": ("H", "R"), "allgather": ("D", "R")}


class Selector:
    """Algorithm and chunk for the calls of one communicator."""

    def __init__(self, topology: Topology) -> None:
        """Reads the shipped table and, over it, the one that SCAFFE_TABLE names. Raises CommError where that fails."""
        self._topology = topology
        self._table = Table.read(DEFAULT_TABLE) if DEFAULT_TABLE.exists() else Table([])
        if own := os.environ.get(TABLE_VARIABLE):
            self._table = self._table.merged(Table.read(Path(own)))
        self.table = self._table
        self.choose = lru_cache(maxsize=4096)(self._choose)

    def _choose(self, collective: str, algorithm: str, chunk_bytes: int, n_bytes: int,
                is_shared: bool) -> tuple[str, int]:
        """The algorithm's name and the chunk in bytes, for a buffer of n_bytes that lies in a window or not."""
        name, half = wire.split(algorithm)
        self.check(algorithm)
        if self._topology.n_ranks == 1:
            return "mpi" if name in (AUTO, OWN) else name, chunk_bytes or self.default_chunk_bytes(collective)
        if name not in (AUTO, OWN):
            return algorithm, chunk_bytes or self.default_chunk_bytes(collective)
        choice = self._tuned(collective, n_bytes, is_shared and self._topology.n_nodes < self._topology.n_ranks)
        if choice is None or not self.can(collective, choice.algorithm):
            choice = Choice(None, "mpi", self.default_chunk_bytes(collective))
        if choice.algorithm == "mpi" and (half or name == OWN):
            choice = replace(choice, algorithm=self._instead_of_mpi(collective, n_bytes, choice.chunk_bytes))
        if choice.algorithm == "mpi" and not half:
            return "mpi", chunk_bytes or self.default_chunk_bytes(collective)
        return wire.join(choice.algorithm, half), chunk_bytes or choice.chunk_bytes

    def _instead_of_mpi(self, collective: str, n_bytes: int, chunk_bytes: int) -> str:
        """Shared memory where all ranks have it, else few rounds for short buffers and few bytes for long ones."""
        if self._topology.n_nodes == 1 and self.can(collective, "M"):
            return "M"
        return FEW_ROUNDS_FEW_BYTES[collective][n_bytes > self._topology.n_ranks * chunk_bytes]

    def bandwidth_bytes(self, collective: str, place: str, without: int = 0) -> int:
        """The length beyond which the table's choice for the longest buffers holds; `without` an entry that, or one
        chunk."""
        entry = self._table.nearest(Key.of(collective, place, self._topology))
        return (without or self.default_chunk_bytes(collective)) if entry is None else entry.bandwidth_bytes

    def _tuned(self, collective: str, n_bytes: int, is_shared: bool) -> Choice | None:
        key = Key.of(collective, "shared" if is_shared else "host", self._topology)
        is_measured = any(entry.key == key for entry in self._table.entries)
        if is_measured or not is_shared or self._topology.n_nodes == 1:
            return self._table.choose(key, n_bytes)
        if not spans_nodes(collective, self._topology):
            return self._table.choose(replace(key, place="host"), n_bytes)
        across = self._table.choose(Key.of(collective, "host", Topology.flat(self._topology.n_nodes)), n_bytes)
        if across is None or across.algorithm == "mpi" or above(across.algorithm) is not None:
            return across
        return replace(across, algorithm=f"M{across.algorithm}")

    def check(self, algorithm: str) -> None:
        """Raise CommError, the same on every rank, where no algorithm is called that."""
        name, _ = wire.split(algorithm)
        if name in (AUTO, OWN, *LIBRARIES):
            return
        try:
            names.check(name)
        except CommError as error:
            raise CommError(str(error), everywhere=True) from None

    def default_chunk_bytes(self, collective: str) -> int:
        """The chunk of algorithms that are asked for by name."""
        if collective == "bcast" and self._topology.n_nodes == self._topology.n_ranks == 2:
            return PAIR_CHUNK_BYTES
        return NODE_CHUNK_BYTES if self._topology.n_nodes == 1 else NETWORK_CHUNK_BYTES

    def can(self, collective: str, algorithm: str) -> bool:
        """Whether `algorithm` (a name, or "auto") can do `collective` on these ranks."""
        try:
            name, _ = wire.split(algorithm)
            wire.require(collective, algorithm)
            if name not in (AUTO, OWN):
                require(collective, name, self._topology)
        except CommError:
            return False
        return True
