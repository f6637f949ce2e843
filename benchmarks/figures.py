"""A benchmark's figures: printed as a table while they come and, with ``--keep``, kept as JSON in benchmarks/results,
from where ``make results`` makes docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from types import TracebackType
from typing import Any

from scaffe import __version__
from scaffe.atomic_files import write_whole
from scaffe.version import processor_name

RESULTS = Path(__file__).resolve().parent / "results"
FIRST_WIDTH, WIDTH = 36, 16
VECTORS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")  # of /proc/cpuinfo's flags: the last that is there is named


@dataclass(frozen=True)
class Sample:
    """A figure that was measured several times."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        """Of all values."""
        return median(self.values)

    @property
    def spread(self) -> float:
        """Half of the distance between the quartiles, as a share of the median."""
        low, _, high = quantiles(self.values, n=4, method="inclusive") if len(self.values) > 1 else (0.0, 0.0, 0.0)
        return (high - low) / 2 / self.median if self.median else 0.0


Cell = str | float | Sample | None


@dataclass
class Figures:
    """A table of figures; a context, at whose end it is kept if that is wanted.

    Args:
        subject: of those in benchmarks/results.py.
        columns: headings, with units. The first column names the row.
        note: how the figures were measured, in a sentence.
        keep: whether they are kept.
        versions: of peers, by name.
        variant: tells apart what is kept of one subject on one machine: threads, precision.
        device: the GPU's name, where one computed.
    """

    subject: str
    columns: Sequence[str]
    note: str = ""
    keep: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    variant: str = ""
    device: str = ""
    rows: list[list[Cell]] = field(default_factory=list)

    def __enter__(self) -> Figures:
        if self.note:
            print(f"# {self.note}")
        print(_line(self.columns), flush=True)
        return self

    def add(self, *cells: Cell) -> None:
        """Add a row, a cell a column; None where there is no figure.

        Raises:
            ValueError: it has another number of cells than there are columns.
        """
        if len(cells) != len(self.columns):
            raise ValueError(f"{self.subject}: expected {len(self.columns)} cells, got {len(cells)}")
        self.rows.append(list(cells))
        print(_line([shown(cell) for cell in cells]), flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if self.keep and kind is None and self.rows:
            names = filter(None, [self.subject, self.variant, _slug(machine(self.device))])
            path = RESULTS / f"{'.'.join(names)}.json"
            RESULTS.mkdir(exist_ok=True)
            write_whole(path, (json.dumps(self._content(), indent=1) + "\n").encode(), OSError)
            print(f"# kept in {path.name}")

    def _content(self) -> dict[str, Any]:
        return {"subject": self.subject, "machine": machine(self.device), "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "command": _command(),
                "versions": {"scaffe": __version__, "Python": platform.python_version(), **self.versions},
                "note": self.note, "columns": list(self.columns),
                "rows": [[_kept(cell) for cell in row] for row in self.rows]}


def add_flag(parser: ArgumentParser) -> None:
    """``--keep``, which every benchmark of figures has."""
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results")


def version(python: str, module: str) -> str:
    """A module's version in a peer's Python; empty if it cannot be imported."""
    said = f"import {module}; print({module}.__version__)"
    done = subprocess.run([python, "-c", said], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def machine(device: str = "") -> str:
    """The processor, as far as Linux names it, the cores that may be used, and the GPU."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    number = {name: found[1] for name in ("cpu family", "model")
              if (found := re.search(rf"^{name}\s*: (\d+)$", text, re.MULTILINE))}
    flags = set(found[1].split()) if (found := re.search(r"^flags\s*: (.*)$", text, re.MULTILINE)) else set()
    vectors = next((name for name in reversed(VECTORS) if name in flags), "")
    kind = f" (family {number['cpu family']}, model {number['model']}{', ' * bool(vectors)}{vectors})" if number else ""
    n_cores = len(os.sched_getaffinity(0))
    return f"{processor_name() or platform.machine()}{kind}, {n_cores} core{'s' * (n_cores > 1)}" \
        + f", {device}" * bool(device)


def shown(cell: Cell) -> str:
    """A cell as text: three digits, in whole numbers from 100 on; a sample with its spread."""
    if isinstance(cell, Sample):
        return f"{shown(cell.median)} ±{cell.spread:.0%}"
    if cell is None or isinstance(cell, str):
        return cell or "-"
    return f"{cell:,.0f}" if abs(cell) >= 100 or cell == int(cell) else f"{cell:#.3g}".rstrip(".")


def _kept(cell: Cell) -> Any:
    if isinstance(cell, Sample):
        return {"median": cell.median, "spread": cell.spread, "rounds": len(cell.values)}
    return cell


def _line(cells: Sequence[str]) -> str:
    first, *others = cells
    return " ".join([f"{first:{FIRST_WIDTH}s}", *(f"{cell:>{WIDTH}s}" for cell in others)])


def _command() -> str:
    """What was typed, with the emulated cluster before it where it ran on one."""
    typed = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *_public(sys.argv[1:])])
    cluster = os.environ.get("CLUSTER_COMMAND")
    return f"{cluster} -- {typed}" if cluster else typed


def _public(arguments: Sequence[str]) -> list[str]:
    """A command line without this machine's folders, which help nobody who repeats it."""
    return [Path(word).name if word.startswith("/") else word for word in arguments]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
