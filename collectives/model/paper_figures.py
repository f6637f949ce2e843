"""Figures 11 and 12 of S-Caffe (Awan et al., PPoPP'17) from the cost model: hierarchical reduces on many GPUs.

Figure 11 compares a flat binomial tree with chain-binomial and chain-chain, Figure 12 the flat tree with the best
choice for each size ("tuned"). The flat tree of the baseline moves whole messages, as MPI libraries do; all others
are chunked, each size with its best chunk. Every number is modelled, none measured.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from scaffe.atomic_files import cannot_write, write_whole
from scaffe.collectives.errors import CommError
from scaffe.collectives.model.cost import Setting, fastest, predict
from scaffe.collectives.model.machine import GPU_CLUSTER_2016, Machine
from scaffe.collectives.topology import Topology
from scaffe.flags import Flags
from scaffe.line_chart import Chart, Line, bytes_text

BASELINE = "B whole"
FIGURE_11 = ("CB-8", "CB-16", "CC-8", "CC-16")
TUNED = ("B", "C", *FIGURE_11, "CCB-8-4")
CHUNKS = tuple(1 << power for power in (14, 16, 18, 20, 22))


@dataclass(frozen=True, slots=True)
class Row:
    """One message size.

    Attributes:
        n_bytes: the message size.
        seconds: predicted time by algorithm: BASELINE, and each of TUNED with its best chunk.
        tuned: the fastest of TUNED.
        tuned_chunk: its best chunk, bytes.
    """

    n_bytes: int
    seconds: dict[str, float]
    tuned: str
    tuned_chunk: int


def rows(topology: Topology, machine: Machine, max_bytes: int) -> list[Row]:
    """Predicts reduce times.

    Args:
        topology: of the ranks.
        machine: what they run on.
        max_bytes: largest message size.

    Returns:
        A row for each of 1 KiB, 4 KiB, ... up to max_bytes.
    """
    n_bytes = 1 << 10
    table = []
    while n_bytes <= max_bytes:
        table.append(_row(topology, machine, n_bytes))
        n_bytes *= 4
    return table


def _row(topology: Topology, machine: Machine, n_bytes: int) -> Row:
    best = {name: fastest(Setting("reduce", name, topology, machine), n_bytes, CHUNKS) for name in TUNED}
    seconds = {name: time for name, (time, _) in best.items()}
    seconds[BASELINE] = predict(Setting("reduce", "B", topology, machine), n_bytes, n_bytes)
    tuned = min(best, key=lambda name: best[name])
    return Row(n_bytes, seconds, tuned, min(best[tuned][1], n_bytes))


def table_text(table: Sequence[Row]) -> str:
    """Formats rows as a table in microseconds, one line per message size."""
    names = (BASELINE, *TUNED)
    lines = [f"{'bytes':>8}" + "".join(f"{name:>12}" for name in names) + f"{'tuned':>20}{'gain':>7}"]
    for row in table:
        choice = f"{row.tuned} @ {bytes_text(row.tuned_chunk)}"
        gain = row.seconds[BASELINE] / row.seconds[row.tuned]
        lines.append(f"{bytes_text(row.n_bytes):>8}" + "".join(f"{row.seconds[name] * 1e6:12.1f}" for name in names)
                     + f"{choice:>20}{gain:7.2f}")
    return "\n".join(lines)


def charts(table: Sequence[Row], place: str) -> tuple[Chart, Chart]:
    """Draws Figure 11 and Figure 12 from the rows; `place` describes the ranks in the titles."""
    def line(name: str) -> Line:
        return Line(name, [(row.n_bytes, row.seconds[name] * 1e6) for row in table])

    tuned = Line("tuned", [(row.n_bytes, row.seconds[row.tuned] * 1e6) for row in table])
    return (Chart(f"Figure 11 (model): reduce by hierarchies, {place}", [line(BASELINE), *map(line, FIGURE_11)]),
            Chart(f"Figure 12 (model): tuned reduce, {place}", [line(BASELINE), line("B"), tuned]))


def main(argv: Sequence[str]) -> int:
    """Runs the command `simulate`: prints the table, and writes figure11.svg, figure12.svg and figures.json to --out.

    Args:
        argv: the command line, without the program's name.

    Returns:
        The exit code, 0.

    Raises:
        CommError: on impossible constants, ranks or sizes, and on a file that cannot be written.
    """
    options = _flags().parse(argv)
    machine = replace(GPU_CLUSTER_2016, **{name: getattr(options, name) for name in _constants()})
    topology = Topology.from_ranks_per_node(options.ranks, options.ranks_per_node)
    table = rows(topology, machine, options.max_bytes)
    place = f"{options.ranks} GPUs, {options.ranks_per_node} per node"
    print(f"Modelled reduce, microseconds, {place}; {machine}")
    print(table_text(table))
    if options.out:
        _write(options, machine, table, place)
    return 0


def _write(options: Namespace, machine: Machine, table: Sequence[Row], place: str) -> None:
    folder = Path(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommError(cannot_write(folder, error)) from None
    for number, chart in zip((11, 12), charts(table, place), strict=True):
        write_whole(folder / f"figure{number}.svg", chart.svg().encode(), CommError)
    content = {"modelled": True, "collective": "reduce", "ranks": options.ranks,
               "ranks_per_node": options.ranks_per_node, "machine": asdict(machine),
               "rows": [asdict(row) for row in table]}
    write_whole(folder / "figures.json", (json.dumps(content, indent=1) + "\n").encode(), CommError)


def _constants() -> list[str]:
    return [constant.name for constant in fields(Machine)]


def _flags() -> Flags:
    flags = Flags("simulate", "Figures 11 and 12 of S-Caffe from the cost model.")
    flags.flag("ranks", 160, "GPUs")
    flags.flag("ranks_per_node", 16, "GPUs of a node")
    flags.flag("max_bytes", 256 << 20, "largest message, bytes")
    flags.flag("out", "", "folder for figure11.svg, figure12.svg and figures.json", metavar="FOLDER")
    flags.section("The machine")
    for name in _constants():
        flags.flag(name, getattr(GPU_CLUSTER_2016, name), "bytes/s" if name.endswith("bandwidth") else "seconds")
    return flags
