"""Files for viewers: a trace of what each rank did when, for Chrome and Perfetto; and events for TensorBoard."""

from __future__ import annotations

import importlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format

from scaffe.atomic_files import check_writable, make_folder, write_whole
from scaffe.errors import UserError
from scaffe.log import warning
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
        self._zero = 0.0

    def begin(self, solver: Solver) -> None:
        """Start to collect spans. Called by all ranks.
        Raises UserError on all ranks, if the file cannot be written."""
        is_root = solver.communicator.rank == 0
        together(solver.communicator, lambda: check_writable(self._path, UserError) if is_root else None)
        solver.communicator.barrier()
        self._zero = self._zero or time.perf_counter()  # after a loss this is called again
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
            about = {"net": text_format.MessageToString(message_of(solver.net)), "multiply_adds": products(solver.net)}
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


N_BINS = "auto"


class Tensorboard(Observer):
    """Writes what displays and tests measure; with the solver's ``debug_info`` histograms too, at displayed iterations:
    of the parameters, and of rank 0's gradients before the update (summed where the strategy sums them there).
    ``folder``: where rank 0 writes; made if it is not there. A run that resumes adds a file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: EventFile | None = None

    def begin(self, solver: Solver) -> None:
        """Open the file. Called by all ranks.
        Raises UserError on all ranks, if tensorboardX is not installed or the folder cannot be written."""
        is_root = solver.communicator.rank == 0
        self._file = together(solver.communicator, lambda: EventFile(self._folder) if is_root else None)

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        display = solver.param.display
        if self._file is not None and solver.param.debug_info and display and solver.iteration % display == 0:
            file, step = self._file, solver.iteration
            self._write(lambda: file.add(histograms(solver), step))

    def measured(self, solver: Solver, phase: str, values: dict[str, float]) -> None:
        if self._file is not None:
            file, step = self._file, solver.iteration
            self._write(lambda: file.add([(f"{phase}/{name}", value) for name, value in values.items()], step))

    def finish(self, solver: Solver) -> None:
        if self._file is not None:
            self._write(self._file.close)

    def _write(self, step: Callable[[], None]) -> None:
        """Pictures of a run are no reason to stop it: if they cannot be written, a line says so and it goes on."""
        file = self._file
        try:
            step()
        except OSError as error:
            if file is not None:
                warning(f"-tensorboard {self._folder}: {file.path} cannot be written "
                        f"({(error.strerror or str(error)).lower()}); training goes on without it")
                with suppress(OSError):
                    file.close()
            self._file = None


class EventFile:
    """An event file of tensorboardX's, written as events come: its own writer has a thread, which dies of a full disk.
    Raises UserError if tensorboardX is not installed, or the folder cannot be written."""

    def __init__(self, folder: str) -> None:
        try:
            _, self._summary, self._events, writer = (importlib.import_module(f"tensorboardX{name}") for name in (
                "", ".summary", ".proto.event_pb2", ".event_file_writer"))
        except ImportError:
            raise UserError("-tensorboard needs the package tensorboardX: pip install 'scaffe[tensorboard]'") from None
        make_folder(folder, lambda line: UserError(f"-tensorboard {line}"))
        try:  # with a suffix, so that nobody plants a link of that name
            self._writer = writer.EventsWriter(str(Path(folder) / "events"), f".{secrets.token_hex(4)}")
        except OSError as error:
            raise UserError(f"-tensorboard {folder}: {(error.strerror or str(error)).lower()}") from error
        self.path = str(self._writer._file_name)

    def add(self, values: Iterable[tuple[str, float | np.ndarray]], step: int) -> None:
        """Write numbers, and histograms of arrays, with their names. Raises OSError."""
        for name, value in values:
            with suppress(ValueError, IndexError):  # elements all huge: no bins (the latter by NumPy 1.26.0)
                summary = (self._summary.histogram(name, value, N_BINS) if isinstance(value, np.ndarray) else
                           self._summary.scalar(name, value))
                self._writer.write_event(self._events.Event(summary=summary, step=step, wall_time=time.time()))
        self._writer.flush()  # a run that is killed leaves them

    def close(self) -> None:
        """Write what is left. Raises OSError."""
        self._writer.close()


def histograms(solver: Solver) -> Iterator[tuple[str, np.ndarray]]:
    """The finite elements of each learnable parameter and of its gradient, on the host, with their names."""
    to_host = solver.net.context.kernels.to_host
    learnable = {id(param.blob) for param in solver.net.params.params}
    for node in solver.net.nodes:
        for number, blob in enumerate(node.layer.blobs):
            if id(blob) in learnable:
                for kind, values in (("parameters", blob.data_flat), ("gradients", blob.diff_flat)):
                    elements = np.asarray(to_host(values), np.float32).reshape(-1)
                    if (finite := elements[np.isfinite(elements)]).size:
                        yield f"{kind}/{node.name}/{number}", finite
