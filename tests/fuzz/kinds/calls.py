"""Sequences of calls to nets, or to a solver and its nets: a file has their seed, the precision and which."""

from __future__ import annotations

import random
from pathlib import Path

import scaffe as caffe
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind
from tests.scaffe.pycaffe.random_calls import TOLERANCES, Calls
from tests.scaffe.pycaffe.random_solver import SolverCalls

MAKERS = {"net": Calls, "solver": SolverCalls}


def seeds(folder: Path) -> list[Files]:
    """One sequence of each precision, of nets and of a solver."""
    return [{"seed": f"1 {precision} {maker}".encode()} for precision in TOLERANCES for maker in MAKERS]


def read(folder: Path) -> None:
    """Run the sequence beside layers that run one after another. Raises AssertionError where they differ."""
    seed, precision, maker = (folder / "seed").read_text().split()
    caffe.set_precision(precision)
    try:
        MAKERS[maker](int(seed), folder, precision).run()
    finally:
        caffe.set_precision("fp32")


def mutate(rng: random.Random, files: Files) -> Files:
    """Another sequence of the same kind."""
    return {"seed": b"%d %s" % (rng.randrange(1 << 32), files["seed"].partition(b" ")[2])}


KIND = Kind(seeds, read, mutate, n_at_once=10, patience=30)  # compiling with bounds checks counts
