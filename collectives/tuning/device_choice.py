"""What a call on device buffers gets when it leaves algorithm or chunk to us. Pure."""

from __future__ import annotations

from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.planning.requirements import BY_PARTS
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.table import Choice, Key, Table

LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES, CHUNKS = 256 << 10, 4 << 20, 8
"""Assumed, not measured. A chunk costs each rank o = 40 us of launches, events and Python, and c/B on its way (B = 10
GB/s through host memory); a chain of P takes (n/c + P - 2)(o + c/B), least at c = sqrt(n o B / (P - 2)): for 4 ranks
0.4 MB of 1 MB, 1.8 of 16 MB, 7 of 256 MB. An eighth of the buffer within bounds is close, and short to begin with."""
SHORT_BYTES = 64 << 10
"""Assumed, not measured: below it latencies count, so trees of log2 P levels; above it bytes, so chains and rings."""
BANDWIDTH_BYTES = 2 << 20
"""From which length on bytes count, where no table says it. Assumed, not measured: in the some 50 us that a call over
CUDA IPC costs, NVLink carries 20 MB and a PCIe link 2; a bucket also waits for all its layers."""

SHORT = {"reduce": "B", "bcast": "B", "allreduce": "B", "reduce_scatter": "H", "allgather": "D"}
LONG = {"reduce": "C", "bcast": "C", "allreduce": "R", "reduce_scatter": "R", "allgather": "R"}


def choose(collective: str, n_bytes: int, topology: Topology, table: Table, has_ipc: bool) -> Choice:
    """The tuned table's choice for the place `cuda` where it has one that can run here, else the defaults.

    `has_ipc`: the ranks of a node can map one another's device memory. The library's own reductions are never chosen.
    """
    tuned = table.choose(Key.of(collective, "cuda", topology), n_bytes)
    if tuned is not None and tuned.algorithm != "mpi" and (has_ipc or not parse(tuned.algorithm).is_shared):
        return tuned
    name = (SHORT if n_bytes < SHORT_BYTES else LONG)[collective]
    is_shared = has_ipc and topology.n_nodes < topology.n_ranks
    if is_shared and topology.n_nodes == 1:
        name = "M"
    elif is_shared and collective not in BY_PARTS:
        name = f"M{name}"
    return Choice(None, name, min(max(n_bytes // CHUNKS, LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES))
