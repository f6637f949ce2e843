"""All nets of the bars at all their limits in one call, with PyTorch's own ways to save memory beside them.

    python benchmarks/memory.py bars [-gpu N] [-seconds 235] [-json FILE] [-peer PYTHON_WITH_TORCH]
                                     [-nets NET:PRECISION,...] [-batch N] [-narrow N] [-round_seconds S]
                                     [-limits none,50%]

A line of JSON for each net and limit as it comes: images/s, as a share of no limit's, beside the bar, what the plan
predicts, or the line that refuses it. Ours come first. Each net has a deadline, its part of the time that is left; what
is not ready by then is a row that says so, and the next one runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher import python
from streamed import Streamed

HERE = Path(__file__).resolve().parent
OURS, PEER = HERE / "ours.py", HERE.parent / "peers" / "memory_torch.py"
PEERS_SHARE = 0.4  # of the time, where there is a peer
WAYS = ("eager", "checkpoint", "checkpoint_blocks", "save_on_cpu")
LAST_WORDS = 400  # characters of what a failed command said


@dataclass
class Race:
    """A net in one precision, with the least shares of the speed without a limit that are asked for."""

    net: str
    precision: str
    batch: int
    bars: dict[str, float]
    rates: dict[str, float] = field(default_factory=dict)  # of ours and of the peer's, without a limit

    @property
    def name(self) -> str:
        return f"{self.net} {self.precision}"


def races() -> list[Race]:
    """The table of bars."""
    resnet, vgg = (dict(zip(("62%", "50%", "38%", "25%"), shares, strict=True))
                   for shares in ((0.95, 0.90, 0.80, 0.72), (0.95, 0.90, 0.80, 0.70)))
    return [Race("caffenet", "tf32", 256, {"62%": 0.97, "50%": 0.95, "38%": 0.85}),
            Race("resnet50", "bf16", 256, resnet), Race("resnet50", "fp32", 256, resnet),
            Race("googlenet", "tf32", 256, {"62%": 0.95, "50%": 0.90, "38%": 0.80}),
            Race("vgg16", "bf16", 128, vgg)]


class Run:
    """The rows so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.rows = options, list[dict[str, Any]]()

    def keep(self, race: Race, row: dict[str, Any]) -> None:
        """Print a row, and write all there are."""
        about = {"net": race.net, "precision": race.precision, "batch": self.options.batch or race.batch}
        self.rows.append(about | row)
        print(json.dumps(self.rows[-1]), flush=True)
        if self.options.json:
            self.options.json.write_text(json.dumps(self.rows, indent=1) + "\n")

    def side(self, side: str, of: list[Race], end: float) -> None:
        """Run one side of all races, each with its part of the time that is left until ``end``."""
        for number, race in enumerate(of):
            seconds = (end - time.monotonic()) / (len(of) - number)
            command, key, wanted = self._ours(race) if side == "ours" else self._peer(race)
            found = list[str]()
            for row in reported(command, seconds, wanted, key):
                found.append(row[key])
                rate = row.get("images_per_second")
                if rate and len(found) == 1 and row[key] == wanted[0]:
                    race.rates[side] = rate
                share = {"of_first": rate / race.rates[side]} if rate and side in race.rates else {}
                bar = {"bar": race.bars[row[key]]} if side == "ours" and row[key] in race.bars else {}
                self.keep(race, {"side": side, **row, **share, **bar})

    def _ours(self, race: Race) -> tuple[list[str], str, list[str]]:
        options = self.options
        limits = options.limits.split(",") if options.limits else ["none", *race.bars]
        gpu = ["--gpu", options.gpu] if options.gpu else []
        return python(OURS, *self._common(race), "--limits", ",".join(limits), "--narrow", options.narrow,
                      *gpu), "limit", limits

    def _peer(self, race: Race) -> tuple[list[str], str, list[str]]:
        where = ["--gpu"] if self.options.gpu else []
        return [self.options.peer, str(PEER), *self._common(race), *where, "--ways", ",".join(WAYS)], "way", list(WAYS)

    def _common(self, race: Race) -> list[str]:
        options = self.options
        return [race.net, "--batch", str(options.batch or race.batch), "--precision", race.precision, "--seconds",
                str(options.round_seconds)]


def reported(command: list[str], seconds: float, wanted: list[str], key: str) -> Iterator[dict[str, Any]]:
    """The JSON lines that a command prints, as they come; then one for each that was wanted and did not come, with
    why."""
    left, why = list(wanted), "no time was left"
    if seconds >= 1:
        running = Streamed(command, seconds, os.environ, HERE)
        for line in running:
            if line.startswith("{") and line.rstrip().endswith("}"):
                row = json.loads(line)
                left = [each for each in left if each != row[key]]
                yield row
        last = (running.errors.strip().splitlines() or ["no message"])[-1][-LAST_WORDS:]
        why = f"not ready within {seconds:.0f} s" if running.is_late else f"exit code {running.code}: {last}"
    for each in left:
        yield {key: each, "missing": why}


def chosen(options: argparse.Namespace) -> list[Race]:
    """The races, or those of them that ``-nets`` names."""
    wanted = options.nets.split(",") if options.nets else []
    found = [race for race in races() if not wanted or f"{race.net}:{race.precision}" in wanted]
    others = set(wanted) - {f"{race.net}:{race.precision}" for race in found}
    return found + [Race(*name.split(":"), 16, {"62%": 0.0, "38%": 0.0}) for name in sorted(others)]


def main(arguments: list[str]) -> int:
    """Run all. Returns the exit code: 1 if a row is missing, or failed."""
    parser = argparse.ArgumentParser(prog="memory.py bars", description=__doc__.splitlines()[0])
    parser.add_argument("-gpu", default="", metavar="N", help="train on this GPU")
    parser.add_argument("-seconds", type=float, default=235, help="for everything")
    parser.add_argument("-round_seconds", type=float, default=1.2, help="of measuring one limit")
    parser.add_argument("-json", type=Path, metavar="FILE", help="all rows")
    parser.add_argument("-peer", help="a Python that has torch")
    parser.add_argument("-nets", default="", help="NET:PRECISION,...; all")
    parser.add_argument("-limits", default="", help="instead of the bars'; the first one is what others are a share of")
    parser.add_argument("-batch", type=int, default=0, help="instead of the bars'")
    parser.add_argument("-narrow", type=int, default=1, metavar="N", help="layers have an N-th of their outputs")
    options = parser.parse_args(arguments)
    started, of, run = time.monotonic(), chosen(options), Run(options)
    end = started + options.seconds
    run.side("ours", of, end - options.seconds * PEERS_SHARE * bool(options.peer))
    if options.peer:
        run.side("torch", of, end)
    print(f"# {time.monotonic() - started:.0f} s; {sum('refused' in row for row in run.rows)} refused, "
          f"{sum('missing' in row or 'error' in row for row in run.rows)} missing or failed", file=sys.stderr)
    return int(any("missing" in row or "error" in row for row in run.rows))
