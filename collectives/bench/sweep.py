"""The sweep that all benchmarks share: over message sizes, one column an algorithm."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from ..communicator import Communicator
from ..errors import CommError
from ..failure import describe, report_and_abort
from . import options as flags
from . import report
from .latency import measure_latency
from .measure import Column, Runner, time_call
from .overlap import measure_overlap
from .payload import Payload

ROUNDS = 4
"""Columns take turns this often, so that a change in the machine's speed meets all of them."""


def main(argv: Sequence[str]) -> int:
    """Parse, run, print on rank 0. Returns the exit code."""
    options = flags.parser().parse_args(argv)
    communicator = Communicator.world()
    communicator.install_excepthook()
    try:
        rows = run(communicator, options)
    except CommError as error:
        if communicator.n_ranks > 1 and not error.everywhere:
            report_and_abort(communicator, error)
        if communicator.rank == 0:
            sys.stderr.write(f"bench: {describe(error)}\n")
        return 1
    if options.json and communicator.rank == 0:
        about = {"case": options.case, "ranks": communicator.n_ranks, "nodes": communicator.topology.shape,
                 "dtype": options.dtype, "memory": options.memory, "device": options.device}
        report.write_json(options.json, about, rows)
    return 0


def run(communicator: Communicator, options: argparse.Namespace) -> list[dict[str, object]]:
    """All sizes and columns. Raises CommError on a wrong element, bad flags, or a device that is not there."""
    if options.device == "cuda":
        raise CommError("-d cuda: no CUDA device transport is available here", everywhere=True)
    say = print if communicator.rank == 0 else _silent
    columns = [Column(options.case, title, name, chunk, options.root)
               for title, name, chunk in flags.algorithms(options.algorithms)]
    titles = ["latency"] if options.case == "latency" else [column.title for column in columns]
    kind = "overlap, %" if options.overlap else "slowest rank, us"
    say(report.heading(f"{options.case}: {communicator.n_ranks} ranks, {communicator.topology.shape}, "
                       f"{options.dtype}, {options.memory} memory, {kind}", titles, options.full))
    rows: list[dict[str, object]] = []
    for n_bytes in flags.sizes(options.message_size, np.dtype(options.dtype).itemsize, options.step):
        text, new_rows = _one_size(communicator, options, columns, n_bytes)
        rows += new_rows
        say(text, flush=True)
    return rows


def _one_size(communicator: Communicator, options: argparse.Namespace, columns: list[Column],
              n_bytes: int) -> tuple[str, list[dict[str, object]]]:
    n_elems = n_bytes // np.dtype(options.dtype).itemsize
    payload = Payload(options.dtype, communicator.n_ranks)
    n_warm, n_timed = flags.iterations(options, n_bytes)
    buffer = communicator.alloc(n_elems, options.dtype) if options.memory == "window" else _private(n_elems, options)
    if options.case == "latency":
        samples = [measure_latency(communicator, buffer, n_warm, n_timed, payload)]
        return report.line(n_bytes, samples, options.full), [report.row(n_bytes, "latency", samples[0])]
    other = _private(n_elems, options)
    runners = [Runner(communicator, column, buffer, other) for column in columns]
    for runner in runners:
        runner.verify(payload, is_blocking=not options.overlap)
    buffer[:], other[:] = 0, 0
    if options.overlap:
        return _overlaps(communicator, columns, runners, n_bytes, min(n_timed, 20))
    samples = _samples(communicator, runners, n_warm, n_timed)
    note = "        Pass" if options.validation else ""
    rows = [report.row(n_bytes, column.title, seconds) for column, seconds in zip(columns, samples)]
    return report.line(n_bytes, samples, options.full, note), rows


def _samples(communicator: Communicator, runners: list[Runner], n_warm: int, n_timed: int) -> list[np.ndarray]:
    calls = [runner.start(is_blocking=True) for runner in runners]
    share = -(-n_timed // ROUNDS)
    rounds = [[time_call(communicator, call, n_warm, share) for call in calls] for _ in range(ROUNDS)]
    return [np.concatenate(parts) for parts in zip(*rounds)]


def _overlaps(communicator: Communicator, columns: list[Column], runners: list[Runner], n_bytes: int,
              n_timed: int) -> tuple[str, list[dict[str, object]]]:
    found = [measure_overlap(communicator, runner.start(is_blocking=False), 2, n_timed) for runner in runners]
    rows: list[dict[str, object]] = [{"bytes": n_bytes, "algorithm": column.title, **figures}
                                     for column, figures in zip(columns, found)]
    percents = [np.array([figures["overlap"] / 1e6]) for figures in found]
    return report.line(n_bytes, percents, full=False), rows


def _private(n_elems: int, options: argparse.Namespace) -> np.ndarray:
    return np.zeros(n_elems, options.dtype)


def _silent(*values: object, **how: object) -> None:
    """The other ranks print nothing."""
