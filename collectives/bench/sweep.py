"""The sweep that all benchmarks share: over message sizes, one column per algorithm."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from scaffe.atomic_files import check_writable
from scaffe.collectives.bench import payload as where
from scaffe.collectives.bench import report
from scaffe.collectives.bench.measure import Column, Runner, time_in_turns, undisturbed
from scaffe.collectives.bench.options import algorithms, bench_flags, iterations, sizes
from scaffe.collectives.bench.overlap import measure_latency, measure_overlap
from scaffe.collectives.bench.payload import HostBuffers, Payload, check_room
from scaffe.collectives.bench.report import MOST, check, on_root
from scaffe.collectives.bench.server import SAME_BYTES, ServerRunner, slacks
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.failure import describe, report_and_abort

ROUNDS = 4
"""Columns take turns this often, so that a change in the machine's speed meets all of them."""


def main(argv: Sequence[str]) -> int:
    """Runs the command `bench`; rank 0 prints. Returns the exit code: 0, or 1 when an element was wrong or the
    benchmark cannot run."""
    flags = bench_flags()
    options = flags.parse(argv)
    if options.unmapped and options.memory != "device":
        flags.error(f"-unmapped needs -memory device, not {options.memory}")
    communicator = Communicator.world()
    communicator.install_excepthook()
    try:
        if options.json:
            on_root(communicator, lambda: check_writable(options.json, CommError))
        buffers = where.of(options.memory, communicator)
        rows = run(communicator, options, buffers)
        transport = buffers.about(communicator)
    except CommError as error:
        if communicator.n_ranks > 1 and not error.everywhere:
            report_and_abort(communicator, error)
        if communicator.rank == 0:
            sys.stderr.write(f"bench: {describe(error)}\n")
        return 1
    if options.json:
        about = {"case": options.case, "ranks": communicator.n_ranks, "nodes": communicator.topology.shape,
                 "dtype": options.dtype, "memory": options.memory, "unmapped": options.unmapped} | transport
        on_root(communicator, lambda: report.write_json(options.json, about, rows))
    return 0


def run(communicator: Communicator, options: Namespace, buffers: HostBuffers) -> list[dict[str, Any]]:
    """Measures all sizes and columns. All ranks call it.

    Returns:
        A row for each size and column, as `report.row` and `measure_overlap` give it.

    Raises:
        CommError: on a wrong element, an impossible flag, or with -check_auto where auto is too slow.
    """
    say = print if communicator.rank == 0 else _silent
    collective = SAME_BYTES.get(options.case, options.case)
    columns = [Column(collective, title, name, chunk, options.root, options.check_auto)
               for title, name, chunk in algorithms(options.algorithms)]
    for column in columns:
        communicator.algorithms.check(column.algorithm)
    titles = [f"slack {slack:g}" for slack in slacks(options)] + [column.title for column in columns]
    titles = ["latency"] if options.case == "latency" else titles
    kind = "overlap, %" if options.overlap else "slowest rank, us"
    memory = "unmapped device" if options.unmapped else options.memory
    say(report.heading(f"{options.case}: {communicator.n_ranks} ranks, {communicator.topology.shape}, "
                       f"{options.dtype}, {memory} memory, {kind}", titles, options.full))
    for text in buffers.about(communicator).values():
        say(f"# {text}")
    rows: list[dict[str, Any]] = []
    lengths = sizes(options.message_size, np.dtype(options.dtype).itemsize, options.step)
    if options.memory != "device":
        check_room(communicator, lengths[-1])
    for n_bytes in lengths:
        text, new_rows = _one_size(communicator, options, columns, n_bytes, buffers)
        rows += new_rows
        say(text, flush=True)
    slow = [f"{row['bytes']} bytes {row['times_best']:.2f} times {row['best']}" for row in rows
            if row.get("times_best", 0) > MOST]
    if slow:
        raise CommError(f"auto takes more than {MOST} times the best: {', '.join(slow)}", everywhere=True)
    return rows


def _one_size(communicator: Communicator, options: Namespace, columns: list[Column],
              n_bytes: int, buffers: HostBuffers) -> tuple[str, list[dict[str, Any]]]:
    n_elems = n_bytes // np.dtype(options.dtype).itemsize
    payload = Payload(options.dtype, communicator.n_ranks, buffers)
    n_warm, n_timed = iterations(options, n_bytes)
    other = buffers.private(n_elems, options.dtype)
    is_window = options.memory != "host" and not options.unmapped
    buffer = (buffers.window(communicator, n_elems, options.dtype) if is_window
              else buffers.private(n_elems, options.dtype))
    if options.case == "latency":
        samples = [measure_latency(communicator, buffer, n_warm, n_timed, payload)]
        return report.line(n_bytes, samples, options.full), [report.row(n_bytes, "latency", samples[0])]
    servers = [ServerRunner(communicator, options, slack, n_elems, buffers) for slack in slacks(options)]
    collectives = [Runner(communicator, column, buffer, other, buffers.synchronize) for column in columns]
    runners: list[ServerRunner | Runner] = [*servers, *collectives]
    for runner in runners:
        runner.verify(payload, is_blocking=not options.overlap)
    buffer[...] = other[...] = 0
    if options.overlap:
        return _overlaps(communicator, columns, collectives, n_bytes, min(n_timed, 20))
    calls: list[Callable[[], object]] = [runner.start(is_blocking=True) for runner in runners]
    if options.check_auto:
        return _checked(communicator, columns, calls, n_bytes, (n_warm, n_timed))
    samples = [rounds.reshape(-1) for rounds in time_in_turns(communicator, calls, n_warm, n_timed, ROUNDS)]
    for server in servers:
        server.close()
    note = "        Pass" if options.validation else ""
    rows = [report.row(n_bytes, runner.title, seconds) for runner, seconds in zip(runners, samples, strict=True)]
    return report.line(n_bytes, samples, options.full, note), rows


def _checked(communicator: Communicator, columns: list[Column], calls: Sequence[Callable[[], object]], n_bytes: int,
             counts: tuple[int, int]) -> tuple[str, list[dict[str, Any]]]:
    """Each column's fastest of several measurements; adds `times_best` and `best` to auto's row."""
    titles = [column.title for column in columns]
    found: list[list[float]] = []

    def measure() -> list[float]:
        found.append([undisturbed(rounds) for rounds in time_in_turns(communicator, calls, *counts, ROUNDS)])
        return found[-1]

    times_best, best = check(titles, measure)
    samples = [np.array([seconds]) for seconds in np.min(found, axis=0)]
    rows: list[dict[str, Any]] = [report.row(n_bytes, title, seconds)
                                  for title, seconds in zip(titles, samples, strict=True)]
    rows[titles.index("auto")] |= {"times_best": times_best, "best": best}
    return report.line(n_bytes, samples, full=False, note=f"   {times_best:.2f} times {best}"), rows


def _overlaps(communicator: Communicator, columns: list[Column], runners: list[Runner], n_bytes: int,
              n_timed: int) -> tuple[str, list[dict[str, Any]]]:
    found = [measure_overlap(communicator, runner.start(is_blocking=False), 2, n_timed) for runner in runners]
    rows: list[dict[str, Any]] = [{"bytes": n_bytes, "algorithm": column.title, **figures}
                                     for column, figures in zip(columns, found, strict=True)]
    percents = [np.array([figures["overlap"] / 1e6]) for figures in found]
    return report.line(n_bytes, percents, full=False), rows


def _silent(*values: object, **how: object) -> None:
    """The other ranks print nothing."""
