"""A trace of what each rank did when, for Chrome and Perfetto."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from google.protobuf import text_format

from scaffe.atomic_files import check_writable, write_whole
from scaffe.errors import UserError
from scaffe.memory.backing.store import BACK, OUT, WAITS
from scaffe.nets.net import Net
from scaffe.nets.setup import message_of
from scaffe.nets.summary import products
from scaffe.training.ranks import together
from scaffe.training.solver import Observer, Solver
from scaffe.training.timers import HELPER, MAIN

LAYERS = "layers"
OPTIONAL = (OUT, BACK, WAITS)  # of limited memory
THREADS = (MAIN, LAYERS, HELPER, *OPTIONAL)
MOST_SPANS = 200_000  # a rank: what a viewer can show; a longer run is traced up to there

Span = tuple[str, str, float, float]
Count = tuple[float, dict[str, float]]
"""When, in seconds, and what had been counted by then."""


class Timeline(Observer):
    """Collects spans of time on every rank; rank 0 writes them to one file at the end ("X" events of the trace-event
    format).

    Each rank is a process of the trace, with three threads: the main thread's activities (forward, waits, update), its
    layers, and the helper thread's collectives; two more where arrays move out of memory and back. What its strategy
    counts is a curve ("C" events). On every rank time 0 is the end of one barrier. A layer that is fused to the one
    before it (ReLU) shows no forward of its own. The file also holds the net and its layers' multiply-adds.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._spans: list[Span] = []
        self._counts: list[Count] = []
        self._zero, self._first_iteration = 0.0, 0

    def begin(self, solver: Solver) -> None:
        """Start to collect spans. Called by all ranks.
        Raises UserError on all ranks, if the file cannot be written."""
        is_root = solver.communicator.rank == 0
        together(solver.communicator, lambda: check_writable(self._path, UserError) if is_root else None)
        solver.communicator.barrier()
        if not self._zero:  # after a loss this is called again
            self._zero, self._first_iteration = time.perf_counter(), solver.iteration
        solver.timers.record = self._keep
        _LayerSpans(solver.net, self._keep)

    def after_iteration(self, solver: Solver) -> None:
        counted = solver.strategy.counters()
        if counted and len(self._counts) < MOST_SPANS:
            self._counts.append((time.perf_counter() - self._zero, counted))

    def finish(self, solver: Solver) -> None:
        """Gather the ranks' spans and write the file. Called by all ranks.
        Raises UserError on all ranks, if the file cannot be written."""
        solver.timers.record = None
        spans = [(thread, name, start - self._zero, end - self._zero) for thread, name, start, end in self._spans]
        everyone = solver.communicator.gather_objects((spans, self._counts))
        together(solver.communicator, lambda: self._write(solver, everyone))

    def _write(self, solver: Solver, everyone: list[tuple[list[Span], list[Count]]] | None) -> None:
        if everyone is not None:
            about = {"net": text_format.MessageToString(message_of(solver.net)), "multiply_adds": products(solver.net),
                     "first_iteration": self._first_iteration}
            spans, counts = zip(*everyone, strict=True)
            write_whole(self._path, trace_text(spans, about, counts).encode(), UserError)

    def _keep(self, thread: str, name: str, started: float, ended: float) -> None:
        if len(self._spans) < MOST_SPANS:
            self._spans.append((thread, name, started, ended))


class _LayerSpans:
    """Hooks that record a span for every layer's forward and backward, the strategy's waits before and after left
    out."""

    def __init__(self, net: Net, keep: Any) -> None:
        self._net, self._keep = net, keep
        self._open: tuple[str, float] | None = None
        net.before_forward.insert(0, self._close)
        net.before_forward.append(lambda index: self._start(index, "forward"))
        net.before_backward.insert(0, self._close)
        net.before_backward.append(lambda index: self._start(index, "backward"))
        net.after_backward.insert(0, self._close)

    def _start(self, index: int, direction: str) -> None:
        node = self._net.nodes[index]
        kind = "data" if node.is_source and direction == "forward" else direction
        self._open = (f"{kind} {node.name}", time.perf_counter())

    def _close(self, index: int) -> None:
        if self._open is not None:
            self._keep(LAYERS, *self._open, time.perf_counter())
            self._open = None


def trace_text(ranks: Sequence[Sequence[Span]], about: dict[str, Any],
               counts: Sequence[Sequence[Count]] = ()) -> str:
    """The trace as JSON.

    Args:
        ranks: for each rank its spans: thread, name, start and end in seconds.
        about: what is noted beside them, for ``scaffe report``.
        counts: for each rank what it had counted when, ascending.
    """
    events: list[dict[str, Any]] = []
    for rank, spans in enumerate(ranks):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}})
        events += [{"ph": "M", "name": "thread_name", "pid": rank, "tid": i, "args": {"name": thread}}
                   for i, thread in enumerate(THREADS)
                   if thread not in OPTIONAL or any(span[0] == thread for span in spans)]
        events += [{"ph": "X", "name": name, "cat": name.split()[0], "pid": rank, "tid": THREADS.index(thread),
                    "ts": round(start * 1e6, 1), "dur": round((end - start) * 1e6, 1)}
                   for thread, name, start, end in spans]
    for rank, counted in enumerate(counts):
        events += [{"ph": "C", "name": name, "pid": rank, "ts": round(before * 1e6, 1),
                    "args": {"a second": round((late[name] - early[name]) / max(now - before, 1e-6), 1)}}
                   for (before, early), (now, late) in pairwise(counted) for name in late]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}, separators=(",", ":"))
