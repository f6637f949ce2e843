"""Predicts a parameter server's clocks on a machine, and sc-rs's exchange of the same bytes. Closed forms, no messages.

In a clock every worker updates and reads everything. The update's way: the ranks of a node add up their workers'
updates, each its own part; each node sends every shard of another node its sum, in one message; the shard adds what
comes. The read's way is the same backwards, without sums. The parts are on their way at once, so that the slowest stage
(the ranks' ports within a node, the nodes' network ports, the ranks' own work) bounds the time, and the others add what
one part takes.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from scaffe.atomic_files import write_whole
from scaffe.collectives.errors import CommError
from scaffe.collectives.model.machine import Machine
from scaffe.line_chart import Axis, Chart, Line, Logarithmic, bytes_text

CHUNK_BYTES = 256 << 10
"""A shard's part is sent in chunks of this length at most."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server runs. ``server_nodes``: nodes of as many ranks each that hold shards only; 0: every worker holds
    one. Raises CommError: a number below 1 (server_nodes: below 0)."""

    n_workers: int
    per_node: int
    machine: Machine
    server_nodes: int = 0

    def __post_init__(self) -> None:
        for name, least in (("n_workers", 1), ("per_node", 1), ("server_nodes", 0)):
            if getattr(self, name) < least:
                raise CommError(f"simulate: {name} must be {least} or more, not {getattr(self, name)}")

    @property
    def n_nodes(self) -> int:
        return -(-self.n_workers // self.per_node)

    @property
    def node_ranks(self) -> int:
        """Workers of a full node."""
        return min(self.per_node, self.n_workers)

    @property
    def node_bandwidth(self) -> float:
        """Bytes per second of all network ports that a node's ranks use."""
        return min(self.machine.ports, self.node_ranks) * self.machine.inter_bandwidth

    @property
    def n_shards(self) -> int:
        return self.server_nodes * self.per_node or self.n_workers


def clock_seconds(place: Place, n_bytes: int) -> float:
    """Predicts a clock: an update and a read of ``n_bytes`` by all workers. Returns seconds."""
    return sum(_way(place, n_bytes, has_sums) for has_sums in (True, False))


def exchange_seconds(place: Place, n_bytes: int) -> float:
    """Predicts sc-rs's reduce-scatter and all-gather of ``n_bytes`` among the workers. Returns seconds.

    The least of three ways: a ring of all ranks, a ring of nodes whose ranks share their work, halving and doubling.
    """
    if place.n_workers == 1:
        return 0.0
    machine = place.machine
    halving = sum(_halving(place, n_bytes, has_sums) for has_sums in (True, False))
    nodes = sum(_ring(place.n_nodes, place.node_ranks, n_bytes, machine, place.node_bandwidth, has_sums)
                + sum(_within(place, n_bytes, has_sums)) for has_sums in (True, False))
    ring = sum(_ring(place.n_workers, 1, n_bytes, machine, machine.inter_bandwidth, has_sums)
               for has_sums in (True, False))
    return min(halving, nodes, ring if place.n_nodes > 1 else halving)


def clocks_per_second(seconds: float, compute: np.ndarray, slack: float) -> float:
    """Simulates workers whose iterations take different times.

    Args:
        seconds: what a clock takes, none of it hidden behind compute.
        compute: seconds of compute, shape (n_clocks, n_workers).

    Returns:
        Iterations per second of the mean worker.
    """
    n_clocks, n_workers = compute.shape
    ends = np.zeros((n_clocks + 1, n_workers))
    for clock in range(n_clocks):
        must = clock - slack  # iterations that the slowest has finished by then
        begins = np.maximum(ends[clock], ends[int(must)].max() if must > 0 else 0.0)
        ends[clock + 1] = begins + compute[clock] + seconds
    return float(np.mean(n_clocks / ends[-1]))


def _way(place: Place, n_bytes: int, has_sums: bool) -> float:
    n_parts = place.n_shards * max(1, n_bytes / place.n_shards / CHUNK_BYTES)
    near, far = _within(place, n_bytes, has_sums), _across(place, n_bytes, has_sums)
    stages = [near[1], far[1], far[2]]
    return near[0] + far[0] + max(stages) + (sum(stages) - max(stages)) / n_parts


def _within(place: Place, n_bytes: int, has_sums: bool) -> tuple[float, float]:
    """Latency, and the time of a rank's port or its sums, when a node's ranks read their parts from one another."""
    machine, n_others = place.machine, place.node_ranks - 1
    if not n_others:
        return 0.0, 0.0
    moved = n_others * n_bytes / place.node_ranks
    return machine.pass_overhead, max(moved / machine.intra_bandwidth, has_sums * moved / machine.sum_bandwidth)


def _across(place: Place, n_bytes: int, has_sums: bool) -> tuple[float, float, float]:
    """Latency, the time of the busiest network ports, and of the busiest rank, between nodes."""
    machine, n_nodes = place.machine, place.n_nodes
    holders = place.server_nodes or n_nodes
    senders = n_nodes if place.server_nodes else n_nodes - 1
    if not senders:
        return 0.0, 0.0, 0.0
    moved = senders * n_bytes / holders  # into a holder's ports; a sender's carry no more than all parts
    port = max(moved, n_bytes if place.server_nodes else 0) / place.node_bandwidth
    n_messages = max(senders, holders if place.server_nodes else 0)
    ranks = place.per_node if place.server_nodes else place.node_ranks
    return machine.inter_latency, port, _work(machine, n_messages, moved / ranks, has_sums)


def _work(machine: Machine, n_messages: int, n_bytes: float, has_sums: bool) -> float:
    """A rank's own time for messages sent and as many received."""
    sums = n_messages * machine.sum_overhead + n_bytes / machine.sum_bandwidth
    return 2 * n_messages * machine.overhead + has_sums * sums


def _ring(n_places: int, n_sharing: int, n_bytes: int, machine: Machine, bandwidth: float, has_sums: bool) -> float:
    """Rounds of one block between neighbours over links of ``bandwidth``; ``n_sharing`` ranks share a block's sum."""
    block = n_bytes / n_places
    one = 2 * machine.overhead + machine.inter_latency + block / bandwidth
    sums = machine.sum_overhead + block / n_sharing / machine.sum_bandwidth
    return (n_places - 1) * (one + has_sums * sums)


def _halving(place: Place, n_bytes: int, has_sums: bool) -> float:
    """Rounds with a partner half as far away each, of half as many bytes; ranks of a node share its network port.

    A number of workers that is no power of two adds a round of everything, in which the excess fold.
    """
    machine, n_seats = place.machine, 1 << (place.n_workers.bit_length() - 1)
    distances = [1 << bit for bit in range(n_seats.bit_length() - 1)]
    rounds = [(distance, n_bytes * distance / n_seats) for distance in distances]
    seconds = 0.0
    for distance, moved in [*rounds, *[(1, float(n_bytes))] * (n_seats != place.n_workers)]:
        is_far = distance >= place.per_node
        latency = machine.inter_latency if is_far else machine.intra_latency
        port = place.node_ranks * moved / place.node_bandwidth if is_far else moved / machine.intra_bandwidth
        seconds += latency + port + _work(machine, 1, moved, has_sums)
    return seconds


SLACKS = (0.0, 1.0, 3.0, np.inf)
WORKERS = (16, 64, 256, 1024, 4096)
SIZES = tuple(1 << power for power in range(14, 31, 4))
N_CLOCKS = 60
"""Iterations of a run with late workers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number of workers.

    Attributes:
        clock, exchange: seconds of a server's clock, and of sc-rs's exchange.
        even, late: clocks per second by name, nobody late, and with workers late at random.
        ratios: by bytes, a server's clock in times of sc-rs's exchange.
    """

    n_workers: int
    clock: float
    exchange: float
    even: dict[str, float]
    late: dict[str, float]
    ratios: dict[int, float]


def rows(options: Namespace, machine: Machine) -> list[Row]:
    """Predicts a row for each number of workers."""
    return [_row(Place(n_workers, options.ranks_per_node, machine, options.server_nodes), options)
            for n_workers in WORKERS]


def _row(place: Place, options: Namespace) -> Row:
    clock, exchange = clock_seconds(place, options.bytes), exchange_seconds(place, options.bytes)
    even = np.full((N_CLOCKS, place.n_workers), options.compute)
    is_late = np.random.default_rng(0).random(even.shape) < options.late_share
    late = np.where(is_late, options.late_times * options.compute, options.compute)
    return Row(place.n_workers, clock, exchange, _rates(clock, exchange, even), _rates(clock, exchange, late),
               {n_bytes: clock_seconds(place, n_bytes) / exchange_seconds(place, n_bytes) for n_bytes in SIZES})


def _rates(clock: float, exchange: float, compute: np.ndarray) -> dict[str, float]:
    rates = {f"slack {slack:g}": clocks_per_second(clock, compute, slack) for slack in SLACKS}
    return rates | {"no server": clocks_per_second(exchange, compute, 0)}


def table_text(table: Sequence[Row], options: Namespace) -> str:
    """Formats the rows as three tables."""
    names = list(table[0].even)
    lines = [f"{'workers':>8}{'clock, ms':>12}{'sc-rs, ms':>12}" + "".join(f"{name:>11}" for name in names)
             + f"   clocks/s, nobody late, {options.compute:g} s of compute"]
    lines += [f"{row.n_workers:8}{row.clock * 1e3:12.2f}{row.exchange * 1e3:12.2f}"
              + "".join(f"{row.even[name]:11.2f}" for name in names) for row in table]
    lines += ["", f"{'workers':>8}{'':24}" + "".join(f"{name:>11}" for name in names)
              + f"   clocks/s, {options.late_share:.0%} of iterations {options.late_times:g} times as long"]
    lines += [f"{row.n_workers:8}{'':24}" + "".join(f"{row.late[name]:11.2f}" for name in names) for row in table]
    lines += ["", f"{'workers':>8}" + "".join(f"{bytes_text(n_bytes):>9}" for n_bytes in SIZES)
              + "   a server's clock in times of sc-rs's exchange; above 1 the server loses"]
    lines += [f"{row.n_workers:8}" + "".join(f"{row.ratios[n_bytes]:9.2f}" for n_bytes in SIZES) for row in table]
    return "\n".join(lines)


def chart(table: Sequence[Row], place: str) -> Chart:
    """Draws clocks per second with late workers, and sc-rs; ``place`` describes the ranks in the title."""
    lines = [Line(name, [(row.n_workers, row.late[name]) for row in table]) for name in table[0].late]
    return Chart(f"Parameter server (model): some workers late, {place}", lines,
                 Axis(scale=Logarithmic(2, step=2), label="workers"), Axis(label="clocks per second"))


def run(options: Namespace, machine: Machine) -> None:
    """Prints the tables, and writes server.svg and server.json to the folder of the options where one is given. Raises
    CommError: a file that cannot be written."""
    table = rows(options, machine)
    place = f"{bytes_text(options.bytes)} bytes, {options.ranks_per_node} GPUs per node"
    print(f"Modelled parameter server, {place}; {machine}")
    print(table_text(table, options))
    if options.out:
        folder = Path(options.out)
        write_whole(folder / "server.svg", chart(table, place).svg().encode(), CommError)
        content = {"modelled": True, "bytes": options.bytes, "ranks_per_node": options.ranks_per_node,
                   "server_nodes": options.server_nodes, "compute": options.compute, "late_share": options.late_share,
                   "late_times": options.late_times, "machine": asdict(machine), "rows": [asdict(row) for row in table]}
        write_whole(folder / "server.json", (json.dumps(content, indent=1) + "\n").encode(), CommError)
