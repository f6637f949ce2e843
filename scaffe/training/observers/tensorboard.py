"""Writes event files for TensorBoard."""

from __future__ import annotations

import importlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from scaffe.atomic_files import make_folder
from scaffe.errors import UserError
from scaffe.log import warning
from scaffe.training.ranks import together
from scaffe.training.solver import Observer, Solver

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
