"""How many clocks per second a parameter server does from 16 to 4,096 workers, and where it loses to sc-rs.

Every number is modelled, none measured: `server.py` says how.
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
from scaffe.collectives.model.server import Place, clock_seconds, clocks_per_second, exchange_seconds
from scaffe.line_chart import Axis, Chart, Line, Logarithmic, bytes_text

SLACKS = (0.0, 1.0, 3.0, np.inf)
WORKERS = (16, 64, 256, 1024, 4096)
SIZES = tuple(1 << power for power in range(14, 31, 4))
N_CLOCKS = 60
"""Iterations of a run with late workers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number of workers.

    Attributes:
        n_workers: how many.
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
    """Prints the tables, and writes server.svg and server.json to the folder of the options where one is given.

    Raises:
        CommError: a file that cannot be written.
    """
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
