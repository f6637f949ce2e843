"""Sequences of calls to a net, as scripts make them: a file has the seed of the net and the calls."""

from __future__ import annotations

import random
from pathlib import Path

from tests.fuzz.children import Files
from tests.fuzz.kind import Kind
from tests.scaffe.pycaffe.random_calls import Calls


def seeds(folder: Path) -> list[Files]:
    """One sequence."""
    return [{"seed": b"1"}]


def read(folder: Path) -> None:
    """Run the sequence beside layers that run one after another. Raises AssertionError where they differ."""
    Calls(int((folder / "seed").read_bytes()), folder).run()


def mutate(rng: random.Random, files: Files) -> Files:
    """Another sequence."""
    return {"seed": str(rng.randrange(1 << 32)).encode()}


KIND = Kind(seeds, read, mutate)
