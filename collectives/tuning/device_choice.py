"""How the GPUs of a job's ranks are joined, as a description that rules go by (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2, sqrt

from scaffe.collectives.planning.algorithm import Algorithm, parse
from scaffe.collectives.planning.planners import spans_nodes
from scaffe.collectives.topology import Topology
from scaffe.collectives.tuning.table import Choice, TuningKey, TuningTable

ONE_CARD, NVLINK, PCI_EXPRESS, HOST = "one card", "NVLink", "PCI Express", "host memory"
WORST_FIRST = (HOST, PCI_EXPRESS, NVLINK, ONE_CARD)


@dataclass(frozen=True)
class Links:
    """The links of a job's GPUs.

    Attributes:
        within: what joins the cards of a node's ranks: ONE_CARD (all ranks share it), NVLINK, PCI_EXPRESS (peers map
            one another's memory over it) or HOST (they cannot); the worst of any two.
        n_ports: active network ports of a node, of the node that has fewest; 0 where they could not be counted.
        port_bandwidth: of the slowest of them, bytes per second; 0 where it is not known.
    """

    within: str = HOST
    n_ports: int = 0
    port_bandwidth: float = 0.0

    @classmethod
    def worst(cls, all_links: Sequence[Links]) -> Links:
        return cls(min((links.within for links in all_links), key=WORST_FIRST.index),
                   min(links.n_ports for links in all_links), min(links.port_bandwidth for links in all_links))

    def proven(self) -> Links:
        """The same where ranks have read one another's memory, whatever the driver says of GPUs that it hides: they
        are joined by PCI Express at the least."""
        return replace(self, within=PCI_EXPRESS) if self.within == HOST else self

    def bandwidth(self, n_shares: int) -> float:
        """Bytes per second of each of a node's shares that go across at the same time, through one port at the most."""
        port = self.port_bandwidth or MESSAGE_BANDWIDTH
        return port * min(self.n_ports / n_shares, 1) if self.n_ports else port

    def __str__(self) -> str:
        ports = f", {self.n_ports} network port{'s' * (self.n_ports > 1)} a node" if self.n_ports else ""
        return f"GPUs joined by {self.within}{ports}"


LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES = 256 << 10, 32 << 20
CHUNK_SECONDS, MESSAGE_BANDWIDTH = 40e-6, 10e9
"""Assumed, not measured: what a chunk costs each rank in launches, events and Python, where no table says otherwise,
and the bandwidth of messages where the system names no port's (through host memory)."""
LEAST_SPLIT_BYTES = 64 << 10
"""Assumed, not measured: below it a node sends one message rather than one for each share. Where shares have to queue
for the node's ports, so many times as much: their start-ups then come one after another."""
BANDWIDTH_BYTES = 2 << 20
"""From this length on a call is bound by bandwidth, where no table says otherwise. Assumed, not measured: a call over
CUDA IPC costs some 50 us, in which NVLink carries 20 MB and a PCIe link 2; a bucket also waits for all its layers."""

SHORT = {"reduce": "B", "bcast": "B", "allreduce": "B", "reduce_scatter": "H", "allgather": "D"}
LONG = {"reduce": "C", "bcast": "C", "allreduce": "R", "reduce_scatter": "R", "allgather": "R"}


def choose_on_device(collective: str, n_bytes: int, topology: Topology, table: TuningTable, has_ipc: bool,
                     has_nccl: bool = False, links: Links = Links()) -> Choice:  # noqa: B008 - frozen
    """Takes the table's choice for `device` memory where there is one that can run here, else the defaults.

    The MPI library's own calls are never chosen. NCCL is the default over NVLink and across nodes, where it can run;
    elsewhere the table has to have it. Without it long buffers are split across nodes (`S`): every GPU goes across with
    its share through a port near it; short ones send one message a node.

    Args:
        has_ipc: whether the ranks of a node can map one another's device memory.
        has_nccl: whether NCCL may be chosen and can run on all ranks.

    Returns:
        The algorithm, and the chunk in bytes.
    """
    tuned = table.choose(TuningKey.of(collective, "device", topology), n_bytes)
    if tuned is not None and _can_run(parse(tuned.algorithm), has_ipc, has_nccl):
        return tuned
    if has_nccl and (links.within == NVLINK or topology.n_nodes > 1):
        return Choice(None, "nccl", MOST_CHUNK_BYTES)
    n_shares, n_across = 1, topology.n_ranks
    if has_ipc and topology.n_nodes < topology.n_ranks:
        n_shares, n_across = min(map(len, topology.nodes)), topology.n_nodes
    start_up_bytes = (table.chunk_seconds or CHUNK_SECONDS) * links.bandwidth(n_shares)
    name = (SHORT if n_bytes // n_shares < short_bytes(n_across, start_up_bytes) else LONG)[collective]
    chunk_bytes = chunk_of(name, n_bytes // n_shares, n_across, start_up_bytes)
    if has_ipc and topology.n_nodes == 1 < topology.n_ranks:
        name = "M"
    elif n_across < topology.n_ranks:
        n_in_turn = -(-n_shares // links.n_ports) if links.n_ports else 1
        is_split = n_shares > 1 and n_bytes >= n_in_turn * LEAST_SPLIT_BYTES or not spans_nodes(collective, topology)
        name = ("S" if is_split else "M") + name
    return Choice(None, name, chunk_bytes)


def chunk_of(name: str, n_bytes: int, n_ranks: int, start_up_bytes: float) -> int:
    """The chunk of a chain, tree or ring of messages.

    A chain of P sends n bytes in chunks c, each of which costs o and takes c/B on its way: (n/c + P - 2)(o + c/B),
    least at c = sqrt(n o B / (P - 2)). (Two ranks forward nothing; they have 3's, so that copies and sums overlap with
    messages.) Trees and rings forward whole blocks in turn, without a long pipeline: 4 o B loses little to o.

    Args:
        name: of the algorithm across, as SHORT and LONG have it.
        start_up_bytes: o B, what a link carries in the time that a chunk costs a rank.
    """
    best = sqrt(n_bytes * start_up_bytes / max(n_ranks - 2, 1)) if name == "C" else 4 * start_up_bytes
    return min(max(round(best), LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES)


def short_bytes(n_ranks: int, start_up_bytes: float = CHUNK_SECONDS * MESSAGE_BANDWIDTH) -> int:
    """The length below which a tree's few rounds are faster than a chain's or ring's few bytes.

    A tree of P takes lg P (o + n/B), a chain (P - 1) o + n/B, so the tree wins where n (lg P - 1) < (P - 1 - lg P) o B:
    0.4 MB for 4 ranks, 1.8 for 20, 9 for 160 with o B of 0.4 MB. With 2 or 3 both have as many rounds.
    """
    if n_ranks < 4:
        return LEAST_SPLIT_BYTES
    return round((n_ranks - 1 - log2(n_ranks)) / (log2(n_ranks) - 1) * start_up_bytes)


def _can_run(algorithm: Algorithm, has_ipc: bool, has_nccl: bool) -> bool:
    if algorithm.library:
        return algorithm.library == "nccl" and has_nccl
    return has_ipc or not algorithm.is_shared
