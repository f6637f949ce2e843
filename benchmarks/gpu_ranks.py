"""S-Caffe's figure on one card: emulated nodes with shaped links, whose ranks all use it; images/s of each way.

    python benchmarks/gpu_ranks.py [--json FILE] [--nodes 4] [--ranks 2] [--rate 10gbit] [--peer PYTHON_WITH_TORCH]

Needs root and iproute2 (jobs/cluster.sh). The first parts are nets, from LMDB: `sc-b` with MPI's own calls, and our
strategies by the hierarchy (CB-node: CUDA IPC within a node, messages through host memory between nodes). With --peer
the last is PyTorch's DistributedDataParallel over gloo on the same nodes; its batches lie on the card. Where CuPy has
NCCL 2.31, which shares a card where it is asked to, the strategies go over its sockets, too. A part takes at most three
minutes, all together nine: what is late is ended, and its rows so far are kept. Processes share the card by
NVIDIA's MPS, or take turns on it where that does not start, which a row says; so a figure says how the ways compare on
such a network, not what as many cards would do. --timelines is a folder for the ways' timelines, as traces and drawn.

A row says what an iteration's parts take by themselves (gpu_parts/hidden.py), which messages the layers are long enough
to hide, and the share of these that was hidden. Bars: sc-obr >= 1.25 times sc-b with MPI's calls (Awan et al.,
PPoPP'17), sc-rs >= sc-obr, sc-obr >= 1.3 times DDP, and sc-obr and sc-rs hide 0.8 of what can be hidden. It has never
run on a card.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from gpu_parts import records  # noqa: E402
from gpu_parts.mps import mps  # noqa: E402
from launcher import python  # noqa: E402
from streamed import Streamed  # noqa: E402

from scaffe.cli.commands.logs import plot  # noqa: E402
from scaffe.errors import UserError  # noqa: E402

BASELINE, OVERLAPPED, SHARDED, PEER = "sc-b:mpi", "sc-obr:CB-node", "sc-rs:auto", "ddp:gloo"
WAYS = (BASELINE, "sc-b:CB-node", "sc-ob:CB-node", OVERLAPPED, SHARDED)
BY_NCCL, SHARED_GPU, LEAST_NCCL = ("sc-obr:nccl", "sc-rs:nccl"), "NCCL_MULTI_RANK_GPU_ENABLE", 23100
VERSION = "from cupy.cuda import nccl; print(nccl.get_version())"
PART_SECONDS, SECONDS = 180.0, 540.0
BARS = ((OVERLAPPED, BASELINE, 1.25), (SHARDED, OVERLAPPED, 1.0), (OVERLAPPED, PEER, 1.3))
"""A way, what it is compared with, and how many times as fast it has to be."""
HIDING, LEAST_HIDDEN = (OVERLAPPED, SHARDED), 0.8
"""Ways, and the share that they have to hide of the messages that can be hidden."""


def verdicts(rows: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """What the bars say of a net's rows by way: one for each bar whose ways were measured."""
    found = []
    for way, other, bar in BARS:
        if {way, other} <= rows.keys():
            ratio = rows[way]["images_per_second"] / rows[other]["images_per_second"]
            found.append({"way": way, "is": f"times {other}", "reached": ratio, "bar": bar, "met": ratio >= bar})
    for way in HIDING:
        if (share := rows.get(way, {}).get("share_hidden")) is not None:
            found.append({"way": way, "is": "of what can be hidden", "reached": share, "bar": LEAST_HIDDEN,
                          "met": share >= LEAST_HIDDEN})
    return found


class Bench:
    """All parts of a run.

    Args:
        options: the command line.
        folder: for records, weights, and what else is needed once.
        places: the variables by which processes find MPS.

    Attributes:
        rows: what was measured, in the order in which it came.
    """

    def __init__(self, options: argparse.Namespace, folder: Path, places: Mapping[str, str]) -> None:
        self._options, self._folder, self.rows = options, folder, list[dict[str, Any]]()
        self._env = {**os.environ, **places, "RANKS": str(options.ranks), "SCAFFE_CUDA_AWARE": "0"}
        if places:
            self._env["SHM"] = "shared"
        self._end = time.monotonic() + options.seconds

    def keep(self, row: dict[str, Any]) -> None:
        """Print a row and write all there are."""
        self.rows.append(row)
        name = f"{row['part']:10s} {row.get('way', ''):16s}"
        said = f"{row['images_per_second']:9.0f} images/s" if "images_per_second" in row else row.get("said", "")
        if "share_hidden" in row:
            said += (f", {row['share_hidden']:.2f} hidden of the {row['hideable_milliseconds']:.1f} ms that can be, of "
                     f"{row['messages_milliseconds']:.1f} ms of messages")
        print(f"{name} failed: {row['error']}" if "error" in row else f"{name} {said}", flush=True)
        if self._options.json:
            self._options.json.write_text(json.dumps(self.rows, indent=1) + "\n")

    def net(self, name: str) -> None:
        """Measure a net in all ways, in one job, and in one more those that NCCL carries."""
        options, path = self._options, self._folder / f"{name}_lmdb"
        end = self._until()
        records.write(path, name, options.batch)
        for ways, environment in ((options.ways.split(","), {}), (self._by_nccl(), {SHARED_GPU: "1"})):
            script = python(HERE / "gpu_parts" / "ranks.py", name, *ways, "--batch", options.batch, "--precision",
                            options.precision, "--steps", options.steps, "--lmdb", path)
            if options.timelines:
                options.timelines.mkdir(parents=True, exist_ok=True)
                script += ["--timelines", str(options.timelines.resolve())]
            for row in self._run(self.on_nodes(script), end, environment) if ways else ():
                self.keep({"part": name, **row})

    def _by_nccl(self) -> list[str]:
        """The ways that NCCL carries, where it lets ranks share a card; what it is goes into a row."""
        asked = subprocess.run([sys.executable, "-c", VERSION], env=self._env, capture_output=True, text=True,
                               check=False)
        version = asked.stdout.strip()
        if asked.returncode == 0 and version.isdigit() and int(version) >= LEAST_NCCL:
            return list(BY_NCCL)
        self.keep({"part": "nccl", "said": f"no NCCL of {LEAST_NCCL} or later: {version or 'it cannot be loaded'}"})
        return []

    def ddp(self) -> None:
        """Measure PyTorch's ranks on all nets, from our weights."""
        options, end, files = self._options, self._until(), []
        for name in options.parts.split(","):
            files.append(f"{name}={self._folder / name}.npz")
            words = python(HERE / "gpu_parts" / "ours.py", name, "--batch", options.batch, "--precision", "fp32",
                           "--save", self._folder / f"{name}.npz")
            subprocess.run(words, env=self._env, check=True, timeout=max(end - time.monotonic(), 0.1))
        script = [options.peer, str(HERE / "peers" / "ddp_gpu.py"), "node0" if options.nodes else "localhost", *files,
                  "--batch", str(options.batch), "--precision", options.precision, "--steps", str(options.steps),
                  "--device", options.peer_device]
        for row in self._run(self.on_nodes(script), end):
            self.keep({"part": row.pop("net", "ddp"), **row})

    def on_nodes(self, script: list[str]) -> list[str]:
        """The command that starts ranks on the emulated nodes."""
        options = self._options
        nodes = [str(HERE.parent / "jobs" / "cluster.sh"), str(options.nodes), options.rate, "--"]
        return [*(nodes if options.nodes else ()), *script]

    def _until(self) -> float:
        return min(self._end, time.monotonic() + PART_SECONDS)

    def _run(self, command: list[str], end: float, more: Mapping[str, str] = MappingProxyType({})
             ) -> Iterator[dict[str, Any]]:
        """The rows that a command prints, with ``more`` in its environment; where it fails or is late, then one that
        says so."""
        seconds = max(end - time.monotonic(), 0.1)
        running = Streamed(command, seconds, {**self._env, **more}, HERE.parent)
        for line in running:
            if line.startswith("{") and line.rstrip().endswith("}"):
                yield json.loads(line)
        if running.is_late or running.code:
            last = (running.errors.strip().splitlines() or ["no message"])[-1]
            yield {"error": f"was ended after {seconds:.0f} s" if running.is_late else last}


def draw(folder: Path, part: str) -> None:
    """The timelines of a net's ways, drawn beside their traces."""
    for file in sorted(folder.glob(f"{part}.*.json")):
        try:
            plot([str(file)])
        except UserError as error:
            print(f"{part:10s} no picture: {error}", flush=True)


def main() -> int:
    """Measure part after part. Returns the exit code: 1 where one failed."""
    options = flags().parse_args()
    with tempfile.TemporaryDirectory() as folder, mps() as (places, why):
        bench = Bench(options, Path(folder), places)
        bench.keep({"part": "mps", "said": why or "processes compute at once"})
        steps = [(name, bench.net, (name,)) for name in options.parts.split(",")]
        for part, step, given in [*steps, *([("ddp", bench.ddp, ())] if options.peer else [])]:
            try:
                step(*given)
            except (OSError, subprocess.SubprocessError) as error:
                bench.keep({"part": part, "error": str(error)})
            if options.timelines:
                draw(options.timelines, part)
    for name in options.parts.split(","):
        for found in verdicts({row["way"]: row for row in bench.rows
                               if row["part"] == name and "images_per_second" in row}):
            said = f"{found['reached']:.2f} {found['is']}: {'met' if found['met'] else 'not met'}, bar {found['bar']:g}"
            bench.keep({"part": name, **found, "said": said})
    return int(any("error" in row for row in bench.rows))


def flags() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--timelines", type=Path)
    parser.add_argument("--peer", default="", help="a Python that has torch")
    parser.add_argument("--peer-device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all parts together")
    parser.add_argument("--parts", default="caffenet,googlenet", help="nets")
    parser.add_argument("--nodes", type=int, default=4, help="0: no nodes, one rank")
    parser.add_argument("--ranks", type=int, default=2, help="of a node")
    parser.add_argument("--rate", default="10gbit", help="of a node's link, as tc has it")
    parser.add_argument("--batch", type=int, default=256, help="of all ranks together")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--ways", default=",".join(WAYS))
    return parser


if __name__ == "__main__":
    sys.exit(main())
