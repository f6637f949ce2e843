"""What a run goes on from, in HDF5."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.kinds.hdf5 import in_the_head
from tests.fuzz.nets import snapshots, solver


def seeds(folder: Path) -> list[Files]:
    """Our own."""
    model, state = snapshots(folder, ".h5")
    return [{"a.solverstate.h5": state.read_bytes(), model.name: model.read_bytes()}]


def read(folder: Path) -> None:
    """Restored."""
    solver().restore(str(folder / "a.solverstate.h5"))


KIND = Kind(seeds, read, one_file(in_the_head))
