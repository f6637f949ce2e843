"""Figures 11 and 12 of S-Caffe (Awan et al., PPoPP'17) from the cost model: hierarchical reduces on many GPUs.

Figure 11 compares a flat binomial tree with chain-binomial and chain-chain, Figure 12 the flat tree with the best
choice for each size ("tuned"). The flat tree of the baseline moves whole messages, as MPI libraries do; all others
are chunked, each size with its best chunk. Beside them the table has other collectives, and the algorithms that begin
in a node's memory, `M` and `S`. Every number is modelled, none measured.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from scaffe.atomic_files import make_folder, write_whole
from scaffe.collectives.errors import CommError
from scaffe.collectives.model import server
from scaffe.collectives.model.cost import Setting, fastest, predict
from scaffe.collectives.model.machine import GPU_CLUSTER_2016, GPU_CLUSTER_2023, Machine
from scaffe.collectives.planning.algorithm import COLLECTIVES
from scaffe.collectives.topology import Topology
from scaffe.flags import MOST_BYTES, MOST_RANKS, Flags, number, whole
from scaffe.flags.flag import Range
from scaffe.line_chart import Chart, Line, bytes_text

BASELINE = "B whole"
FIGURE_11 = ("CB-8", "CB-16", "CC-8", "CC-16")
TUNED = ("B", "C", *FIGURE_11, "CCB-8-4")
CHUNKS = tuple(1 << power for power in (14, 16, 18, 20, 22))
OTHERS = {"reduce": TUNED, "bcast": TUNED, "allreduce": ("B", "C", "R", "H"), "reduce_scatter": ("R", "H"),
          "allgather": ("R", "D")}
"""Algorithms that run between all ranks, by collective."""
LEVELS = {"reduce": ("MC", "SC"), "bcast": ("MC", "SC"), "allreduce": ("MC", "MR", "SC", "SR"),
          "reduce_scatter": ("MR", "SR"), "allgather": ("MR", "SR")}
"""Algorithms that begin in the node's memory."""
LEAST_BYTES, MOST_MODELLED, MOST_SECONDS = 1 << 10, 1 << 12, 1e6
"""Of the table's first message; of GPUs, for the model takes a step for each of them; of any time."""
MACHINES = {"2016": GPU_CLUSTER_2016, "2023": GPU_CLUSTER_2023}


@dataclass(frozen=True, slots=True)
class Row:
    """One message size. ``seconds``: predicted time by algorithm: BASELINE where the collective has trees, and each of
    OTHERS and LEVELS with its best chunk."""

    n_bytes: int
    seconds: dict[str, float]
    tuned: str
    tuned_chunk: int


def rows(topology: Topology, machine: Machine, max_bytes: int, collective: str = "reduce") -> list[Row]:
    """Predicts times. Returns a row for each of 1 KiB, 4 KiB, ... up to max_bytes."""
    n_bytes = LEAST_BYTES
    table = []
    while n_bytes <= max_bytes:
        table.append(_row(topology, machine, n_bytes, collective))
        n_bytes *= 4
    return table


def _row(topology: Topology, machine: Machine, n_bytes: int, collective: str) -> Row:
    levels = LEVELS[collective] if 1 < topology.n_nodes < topology.n_ranks else ()
    seconds = {}
    if "B" in OTHERS[collective]:
        seconds[BASELINE] = predict(Setting(collective, "B", topology, machine), n_bytes, n_bytes)
    best = {name: fastest(Setting(collective, name, topology, machine), n_bytes, CHUNKS)
            for name in (*OTHERS[collective], *levels)}
    seconds |= {name: time for name, (time, _) in best.items()}
    tuned = min(OTHERS[collective], key=lambda name: best[name])
    return Row(n_bytes, seconds, tuned, min(best[tuned][1], n_bytes))


def table_text(table: Sequence[Row]) -> str:
    """Formats rows as a table in microseconds, one line per message size."""
    names = list(table[0].seconds)
    lines = [f"{'bytes':>8}" + "".join(f"{name:>12}" for name in names) + f"{'tuned':>20}{'gain':>7}"]
    for row in table:
        choice = f"{row.tuned} @ {bytes_text(row.tuned_chunk)}"
        gain = row.seconds[names[0]] / row.seconds[row.tuned]
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
    """Runs the command `simulate`: prints the table; writes figure11.svg and figure12.svg (of reduce) and figures.json.

    With --server it is `model.server` that prints and writes.

    Returns:
        The exit code, 0.

    Raises:
        CommError: on impossible constants, ranks or sizes, and on a file that cannot be written.
    """
    options = _flags().parse(argv)
    given = {each.name: value for each in fields(Machine) if (value := getattr(options, each.name)) is not None}
    machine = replace(MACHINES[options.machine], **given)
    if options.out:
        make_folder(options.out, CommError)
    if options.server:
        server.run(options, machine)
        return 0
    topology = Topology.from_ranks_per_node(options.ranks, options.ranks_per_node)
    table = rows(topology, machine, options.max_bytes, options.collective)
    place = f"{options.ranks} GPUs, {options.ranks_per_node} per node"
    print(f"Modelled {options.collective}, microseconds, {place}; {machine}")
    print(table_text(table))
    if options.out:
        _write(options, machine, table, place)
    return 0


def _write(options: Namespace, machine: Machine, table: Sequence[Row], place: str) -> None:
    folder = Path(options.out)
    drawn = charts(table, place) if options.collective == "reduce" else ()
    for figure, chart in zip((11, 12), drawn, strict=False):
        write_whole(folder / f"figure{figure}.svg", chart.svg().encode(), CommError)
    content = {"modelled": True, "collective": options.collective, "ranks": options.ranks,
               "ranks_per_node": options.ranks_per_node, "machine": asdict(machine),
               "rows": [asdict(row) for row in table]}
    write_whole(folder / "figures.json", (json.dumps(content, indent=1) + "\n").encode(), CommError)


def _constant_range(name: str) -> Range:
    if name == "ports":
        return whole(1, MOST_RANKS)
    return number(1, 1e18) if name.endswith("bandwidth") else number(0, MOST_SECONDS)


def _flags() -> Flags:
    flags = Flags("simulate", "Draw figures 11 and 12 of S-Caffe from the cost model, or predict others.")
    flags.flag("collective", "reduce", "what to predict", choices=COLLECTIVES)
    flags.flag("ranks", 160, "GPUs", kind=whole(2, MOST_MODELLED))
    flags.flag("ranks_per_node", 16, "GPUs of a node", kind=whole(1, MOST_MODELLED))
    flags.flag("max_bytes", 256 << 20, "largest message, bytes", kind=whole(LEAST_BYTES, 1 << 40))
    flags.flag("out", "", "folder for figures, as SVG and JSON", metavar="FOLDER")
    flags.section("A parameter server instead")
    flags.flag("server", False, "clocks per second with 16 to 4,096 workers, and where sc-rs is faster")
    flags.flag("bytes", 256 << 20, "parameters, bytes", kind=whole(1, MOST_BYTES))
    flags.flag("server_nodes", 0, "nodes that hold shards only; 0: every worker holds one",
               kind=whole(0, MOST_MODELLED))
    flags.flag("compute", 0.2, "an iteration's compute, seconds", kind=number(0, MOST_SECONDS))
    flags.flag("late_share", 1 / 3, "share of a worker's iterations that take longer", kind=number(0, 1))
    flags.flag("late_times", 2.0, "how many times as long", kind=number(1, 1e6))
    flags.section("The machine")
    flags.flag("machine", "2016", "K80 GPUs and one port a node (2016), or H100 and one port a GPU (2023)",
               choices=tuple(MACHINES))
    for constant in fields(Machine):
        unit = "of a node" if constant.name == "ports" else "bytes/s" if constant.name.endswith("bandwidth") else "s"
        values = ", ".join(f"{getattr(machine, constant.name):g} ({year})" for year, machine in MACHINES.items())
        flags.flag(constant.name, None, f"{unit}; none: {values}", kind=_constant_range(constant.name))
    return flags
