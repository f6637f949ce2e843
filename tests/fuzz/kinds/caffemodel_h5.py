"""Trained nets in HDF5."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.kinds.hdf5 import in_the_head
from tests.fuzz.nets import snapshots, solver


def seeds(folder: Path) -> list[Files]:
    """Our own."""
    return [{"a.caffemodel.h5": snapshots(folder, ".h5")[0].read_bytes()}]


def read(folder: Path) -> None:
    """Loaded into a net."""
    solver().net.copy_from(str(folder / "a.caffemodel.h5"))


KIND = Kind(seeds, read, one_file(in_the_head))
