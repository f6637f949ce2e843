"""Resolves `auto` and `own` to an algorithm and a chunk: the tuned table, bounded by what can run here."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import Algorithm, parse
from scaffe.collectives.planning.planners import require, spans_nodes
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.table import DEFAULT_TABLE, Choice, TuningKey, TuningTable
from scaffe.environment import TABLE

NETWORK_CHUNK_BYTES = 60 << 10
"""With its header just below 64 KiB, from where Open MPI's TCP uses a rendezvous: over 1 Gbit/s a chain of 8 nodes runs
at 1.02 times the wire's limit with it, at 1.2 to 1.4 times with chunks of 64 to 256 KiB."""
NODE_CHUNK_BYTES = 256 << 10
PAIR_CHUNK_BYTES = 16 << 20
"""A broadcast between two nodes forwards nothing, so it needs no pipeline, and fewer messages take half the CPU time:
8 ms for 16 MiB over 1 Gbit/s on both sides together, 14 in chunks of 60 KiB."""
FEW_ROUNDS_FEW_BYTES = {"reduce": ("B", "C"), "bcast": ("B", "C"), "allreduce": ("D", "R"),
                        "reduce_scatter": ("H", "R"), "allgather": ("D", "R")}
"""For buffers that are short for the number of ranks, and for long ones."""
MPI = Algorithm(library="mpi")


class Resolved(NamedTuple):
    """An algorithm that can be run, and its chunk. ``algorithm``: neither `auto` nor `own`."""

    algorithm: Algorithm
    chunk_bytes: int


def tuned_table() -> TuningTable:
    """Reads the shipped table with that of SCAFFE_TABLE over it. Raises CommError where one cannot be read."""
    shipped, own = _shipped(DEFAULT_TABLE), TABLE.get()
    return shipped.merged(TuningTable.read(Path(own))) if own else shipped


class Selector:
    """Chooses algorithm and chunk for the calls of one communicator. ``table``: the shipped table with that of
    SCAFFE_TABLE over it."""

    def __init__(self, topology: Topology) -> None:
        """Reads the tables. Raises CommError where a table cannot be read."""
        self._topology = topology
        self.table = tuned_table()
        self.choose = lru_cache(maxsize=4096)(self._choose)

    def _choose(self, collective: str, algorithm: Algorithm, chunk_bytes: int, n_bytes: int,
                is_shared: bool) -> Resolved:
        """Resolves what a call leaves open.

        Args:
            algorithm: as the caller gave it.
            chunk_bytes: as the caller gave it; 0 for the table's, or the default of algorithms asked for by name.

        Returns:
            The caller's algorithm and chunk where they are given, else those of the table, else the MPI library's call.
        """
        default_chunk_bytes = self.default_chunk_bytes(collective)
        if not algorithm.selection:
            return Resolved(algorithm, chunk_bytes or default_chunk_bytes)
        if self._topology.n_ranks == 1:
            return Resolved(MPI, chunk_bytes or default_chunk_bytes)
        choice = self._tuned(collective, n_bytes, is_shared and self._topology.n_nodes < self._topology.n_ranks)
        if choice is None or not self.can(collective, parse(choice.algorithm)):
            choice = Choice(None, "mpi", default_chunk_bytes)
        chosen = parse(choice.algorithm)
        if chosen == MPI and (algorithm.wire or algorithm.selection == "own"):
            chosen = self._instead_of_mpi(collective, n_bytes, choice.chunk_bytes)
        if chosen == MPI:
            return Resolved(MPI, chunk_bytes or default_chunk_bytes)
        return Resolved(replace(chosen, wire=algorithm.wire), chunk_bytes or choice.chunk_bytes)

    def _instead_of_mpi(self, collective: str, n_bytes: int, chunk_bytes: int) -> Algorithm:
        """Shared memory on one node, else few rounds for short buffers and few bytes for long ones."""
        if self._topology.n_nodes == 1 and self.can(collective, parse("M")):
            return parse("M")
        return parse(FEW_ROUNDS_FEW_BYTES[collective][n_bytes > self._topology.n_ranks * chunk_bytes])

    def bandwidth_bytes(self, collective: str, memory: str, without: int = 0) -> int:
        """Returns the length from which a collective is bound by bandwidth rather than latency, by the table.
        ``memory``: host, shared or device; ``without``: the answer where the table has no entry; 0 for one chunk."""
        entry = self.table.nearest(TuningKey.of(collective, memory, self._topology))
        return (without or self.default_chunk_bytes(collective)) if entry is None else entry.bandwidth_bytes

    def _tuned(self, collective: str, n_bytes: int, is_shared: bool) -> Choice | None:
        key = TuningKey.of(collective, "shared" if is_shared else "host", self._topology)
        is_measured = any(entry.key == key for entry in self.table.entries)
        if is_measured or not is_shared or self._topology.n_nodes == 1:
            return self.table.choose(key, n_bytes)
        if not spans_nodes(collective, self._topology):
            return self.table.choose(replace(key, memory="host"), n_bytes)
        across = self.table.choose(TuningKey.of(collective, "host", Topology.flat(self._topology.n_nodes)), n_bytes)
        if across is None or across.algorithm == "mpi" or parse(across.algorithm).is_shared:
            return across
        return replace(across, algorithm=f"M{across.algorithm}")

    def default_chunk_bytes(self, collective: str) -> int:
        """Returns the chunk in bytes of algorithms that are asked for by name."""
        if collective == "bcast" and self._topology.n_nodes == self._topology.n_ranks == 2:
            return PAIR_CHUNK_BYTES
        return NODE_CHUNK_BYTES if self._topology.n_nodes == 1 else NETWORK_CHUNK_BYTES

    def can(self, collective: str, algorithm: Algorithm) -> bool:
        """Whether `algorithm`, or any where the table is to choose, can do `collective` on these ranks."""
        try:
            require(collective, algorithm, self._topology)
        except CommError:
            return False
        return True


@cache
def _shipped(path: Path) -> TuningTable:
    """The table that comes with this package, read once a process: jobs may make many communicators."""
    return TuningTable.read(path) if path.exists() else TuningTable([])
