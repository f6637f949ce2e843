"""What a call on device buffers gets when it leaves algorithm or chunk to us. Pure."""

from __future__ import annotations

from ..selection import Choice, Key, Table
from ..shared_levels import BY_PARTS, above
from ..topology import Topology

CHUNK_BYTES = 1 << 20
"""Assumed, not measured: a chunk's launches and events cost some 30 us of Python, which 1 MiB hides at 30 GB/s."""
SHORT_BYTES = 64 << 10
"""Assumed, not measured: below it latencies count, so trees of log2 P levels; above it bytes, so chains and rings."""

SHORT = {"reduce": "B", "bcast": "B", "allreduce": "B", "reduce_scatter": "H", "allgather": "D"}
LONG = {"reduce": "C", "bcast": "C", "allreduce": "R", "reduce_scatter": "R", "allgather": "R"}


def choose(collective: str, n_bytes: int, topology: Topology, table: Table, has_ipc: bool) -> Choice:
    """The tuned table's choice for the place `cuda` where it has one that can run here, else the defaults.

    `has_ipc`: the ranks of a node can map one another's device memory. The library's own reductions are never chosen.
    """
    tuned = table.choose(Key.of(collective, "cuda", topology), n_bytes)
    if tuned is not None and tuned.algorithm != "mpi" and (has_ipc or above(tuned.algorithm) is None):
        return tuned
    name = (SHORT if n_bytes < SHORT_BYTES else LONG)[collective]
    is_shared = has_ipc and topology.n_nodes < topology.n_ranks
    if is_shared and topology.n_nodes == 1:
        name = "M"
    elif is_shared and collective not in BY_PARTS:
        name = f"M{name}"
    return Choice(None, name, CHUNK_BYTES)
