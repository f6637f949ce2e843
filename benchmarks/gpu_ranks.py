"""S-Caffe's figure on one card: emulated nodes with shaped links, whose ranks all use it; images/s of each way.

    python benchmarks/gpu_ranks.py [--json FILE] [--nodes 4] [--ranks 2] [--rate 10gbit] [--parts caffenet,googlenet]

Needs root and iproute2 (jobs/cluster.sh). A part is a net, of at most three minutes: `sc-b` with MPI's own calls, and
our strategies by the hierarchy (CB-node: CUDA IPC within a node, messages through host memory between nodes). Batches
lie on the card. Ranks take turns on it, so a figure says how the ways compare on such a network, not what as many cards
would do. Bars: sc-obr >= 1.25 times sc-b with MPI's calls (Awan et al., PPoPP'17), sc-rs >= sc-obr. It has never run on
a card.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from launcher import python  # noqa: E402
from streamed import Streamed  # noqa: E402

BASELINE, OVERLAPPED, SHARDED = "sc-b:mpi", "sc-obr:CB-node", "sc-rs:auto"
WAYS = (BASELINE, "sc-b:CB-node", "sc-ob:CB-node", OVERLAPPED, SHARDED)
SECONDS = 180.0
BARS = ((OVERLAPPED, BASELINE, 1.25), (SHARDED, OVERLAPPED, 1.0))
"""A way, what it is compared with, and how many times as fast it has to be."""


def verdicts(rates: Mapping[str, float]) -> list[str]:
    """What the bars say of images/s by way: a line for each bar whose two ways were measured."""
    found = []
    for way, other, bar in BARS:
        if rates.get(way) and rates.get(other):
            ratio = rates[way] / rates[other]
            found.append(f"{way} is {ratio:.2f} times {other}: {'meets' if ratio >= bar else 'misses'} {bar:g}")
    return found


def command(net: str, options: argparse.Namespace) -> Sequence[str]:
    """What measures a net: all ways in one job on the emulated nodes."""
    script = python(HERE / "gpu_parts" / "ranks.py", net, *options.ways.split(","), "--batch", options.batch,
                    "--precision", options.precision, "--steps", options.steps)
    launcher = [] if options.nodes == 0 else [HERE.parent / "jobs" / "cluster.sh", options.nodes, options.rate, "--"]
    return [str(word) for word in (*launcher, *script)]


def measure(net: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure one net, and print each way's row as it comes. Returns the rows; the last has an error if it failed."""
    environment = {**os.environ, "RANKS": str(options.ranks), "SCAFFE_CUDA_AWARE": "0"}
    running, rows = Streamed(command(net, options), SECONDS, environment, HERE.parent), []
    for line in running:
        if line.startswith("{") and line.rstrip().endswith("}"):
            row = json.loads(line)
            rows.append(row)
            print(f"{net:10s} {row['way']:16s} {row['images_per_second']:9.0f} images/s, {row['hidden']:.2f} of "
                  f"{row['communication_milliseconds']:.1f} ms of messages hidden", flush=True)
    if running.is_late or running.code:
        last = (running.errors.strip().splitlines() or ["no message"])[-1]
        rows.append({"error": f"took more than {SECONDS:g} s" if running.is_late else last})
        print(f"{net:10s} failed: {rows[-1]['error']}", flush=True)
    return rows


def main() -> int:
    """Measure net after net. Returns the exit code: 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", default="caffenet,googlenet", help="nets")
    parser.add_argument("--nodes", type=int, default=4, help="0: no nodes, one rank")
    parser.add_argument("--ranks", type=int, default=2, help="of a node")
    parser.add_argument("--rate", default="10gbit", help="of a node's link, as tc has it")
    parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--ways", default=",".join(WAYS))
    options = parser.parse_args()
    found = {}
    for net in options.parts.split(","):
        found[net] = measure(net, options)
        for line in verdicts({row["way"]: row["images_per_second"] for row in found[net] if "way" in row}):
            print(f"{net:10s} {line}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any("error" in row for rows in found.values() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
