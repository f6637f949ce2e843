"""Resolves `auto` to an algorithm and a chunk for device buffers (pure)."""

from __future__ import annotations

from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.planning.requirements import BY_PARTS
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.table import Choice, TuningKey, TuningTable

LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES, CHUNKS = 256 << 10, 4 << 20, 8
"""Assumed, not measured. A chunk costs each rank o = 40 us of launches, events and Python, and c/B on its way (B = 10
GB/s through host memory); a chain of P takes (n/c + P - 2)(o + c/B), least at c = sqrt(n o B / (P - 2)): for 4 ranks
0.4 MB of 1 MB, 1.8 of 16 MB, 7 of 256 MB. An eighth of the buffer within these bounds is close to that."""
SHORT_BYTES = 64 << 10
"""Assumed, not measured: shorter buffers are bound by latency and take few rounds, longer ones by bandwidth."""
BANDWIDTH_BYTES = 2 << 20
"""From this length on a call is bound by bandwidth, where no table says otherwise. Assumed, not measured: a call over
CUDA IPC costs some 50 us, in which NVLink carries 20 MB and a PCIe link 2; a bucket also waits for all its layers."""

SHORT = {"reduce": "B", "bcast": "B", "allreduce": "B", "reduce_scatter": "H", "allgather": "D"}
LONG = {"reduce": "C", "bcast": "C", "allreduce": "R", "reduce_scatter": "R", "allgather": "R"}


def choose_on_device(collective: str, n_bytes: int, topology: Topology, table: TuningTable, has_ipc: bool) -> Choice:
    """Takes the table's choice for `device` memory where there is one that can run here, else the defaults.

    The MPI library's own calls are never chosen.

    Args:
        collective: its name.
        n_bytes: length of the buffer.
        topology: which ranks share a node.
        table: the tuned table.
        has_ipc: whether the ranks of a node can map one another's device memory.

    Returns:
        The algorithm, and the chunk in bytes.
    """
    tuned = table.choose(TuningKey.of(collective, "device", topology), n_bytes)
    if tuned is not None and tuned.algorithm != "mpi" and (has_ipc or not parse(tuned.algorithm).is_shared):
        return tuned
    name = (SHORT if n_bytes < SHORT_BYTES else LONG)[collective]
    is_shared = has_ipc and topology.n_nodes < topology.n_ranks
    if is_shared and topology.n_nodes == 1:
        name = "M"
    elif is_shared and collective not in BY_PARTS:
        name = f"M{name}"
    return Choice(None, name, min(max(n_bytes // CHUNKS, LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES))
