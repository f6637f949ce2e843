"""Sequences of calls to a net, as scripts make them: a file has the seed of net and calls, and the precision."""

from __future__ import annotations

import random
from pathlib import Path

import scaffe as caffe
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind
from tests.scaffe.pycaffe.random_calls import TOLERANCES, Calls


def seeds(folder: Path) -> list[Files]:
    """One sequence of each precision."""
    return [{"seed": f"1 {precision}".encode()} for precision in TOLERANCES]


def read(folder: Path) -> None:
    """Run the sequence beside layers that run one after another. Raises AssertionError where they differ."""
    seed, precision = (folder / "seed").read_text().split()
    caffe.set_precision(precision)
    try:
        Calls(int(seed), folder, precision).run()
    finally:
        caffe.set_precision("fp32")


def mutate(rng: random.Random, files: Files) -> Files:
    """Another sequence."""
    return {"seed": b"%d %s" % (rng.randrange(1 << 32), files["seed"].split()[1])}


KIND = Kind(seeds, read, mutate)
