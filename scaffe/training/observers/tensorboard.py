"""Event files for TensorBoard, written by tensorboardX."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from scaffe.atomic_files import make_folder
from scaffe.errors import UserError
from scaffe.training.ranks import together
from scaffe.training.solver import Observer, Solver

N_BINS = "auto"


class Tensorboard(Observer):
    """Writes what displays and tests measure; with the solver's ``debug_info`` histograms too, at displayed iterations:
    of the parameters, and of rank 0's gradients before the update (summed where the strategy sums them there).

    Args:
        folder: where rank 0 writes; made if it is not there. A run that resumes adds a file.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._writer: Any = None

    def begin(self, solver: Solver) -> None:
        """Open the file. Called by all ranks.

        Raises:
            UserError: on all ranks, if tensorboardX is not installed or the folder cannot be written.
        """
        is_root = solver.communicator.rank == 0
        self._writer = together(solver.communicator, lambda: open_writer(self._folder) if is_root else None)

    def gradients_ready(self, solver: Solver, loss: float, rate: float) -> None:
        """See Observer."""
        display = solver.param.display
        if self._writer is not None and solver.param.debug_info and display and solver.iteration % display == 0:
            for name, values in histograms(solver):
                with suppress(ValueError, IndexError):  # elements all huge: no bins (the latter by NumPy 1.26.0)
                    self._writer.add_histogram(name, values, solver.iteration, bins=N_BINS)
            self._writer.flush()

    def measured(self, solver: Solver, phase: str, values: dict[str, float]) -> None:
        """See Observer."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{phase}/{name}", value, solver.iteration)
            self._writer.flush()  # a run that is killed leaves them

    def finish(self, solver: Solver) -> None:
        """See Observer."""
        if self._writer is not None:
            self._writer.close()


def open_writer(folder: str) -> Any:
    """A SummaryWriter of tensorboardX.

    Raises:
        UserError: tensorboardX is not installed, or the folder cannot be written.
    """
    try:
        module = importlib.import_module("tensorboardX")
    except ImportError:
        raise UserError("-tensorboard needs the package tensorboardX: pip install 'scaffe[tensorboard]'") from None
    make_folder(folder, lambda line: UserError(f"-tensorboard {line}"))
    try:
        return module.SummaryWriter(logdir=folder, filename_suffix=f".{secrets.token_hex(4)}")  # nobody plants it
    except OSError as error:
        raise UserError(f"-tensorboard {folder}: {(error.strerror or str(error)).lower()}") from error


def histograms(solver: Solver) -> Iterator[tuple[str, np.ndarray]]:
    """The finite elements of each learnable parameter and of its gradient, on the host, with their names."""
    to_host = solver.net.context.kernels.to_host
    learnable = {id(param.blob) for param in solver.net.learnable()}
    for node in solver.net.nodes:
        for number, blob in enumerate(node.layer.blobs):
            if id(blob) in learnable:
                for kind, values in (("parameters", blob.data_flat), ("gradients", blob.diff_flat)):
                    elements = np.asarray(to_host(values), np.float32).reshape(-1)
                    if (finite := elements[np.isfinite(elements)]).size:
                        yield f"{kind}/{node.name}/{number}", finite
