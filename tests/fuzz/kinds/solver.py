"""Solvers' prototxts."""

from __future__ import annotations

import random
from pathlib import Path

from scaffe.nets.graph.prepare import read_solver
from scaffe.proto import caffe_pb2
from tests.fuzz.children import Files
from tests.fuzz.kind import Kind, one_file
from tests.fuzz.mutators import messages

OLD = ('net: "net.prototxt" base_lr: 0.1 solver_type: NESTEROV lr_policy: "multistep" gamma: 0.5 stepvalue: 3 '
       'stepvalue: 5 weight_decay: 1 max_iter: 9 test_iter: 2 test_interval: 3 snapshot_prefix: "run" '
       'net_param { layer { name: "a" type: "ReLU" } } regularization_type: "L1" iter_size: 2 display: 1')


def seeds(folder: Path) -> list[Files]:
    """One with most of the options."""
    return [{"solver.prototxt": OLD.encode()}]


def as_messages(rng: random.Random, content: bytes) -> bytes:
    """Fields changed."""
    return messages.mutate(rng, content, caffe_pb2.SolverParameter)


def read(folder: Path) -> None:
    """Read and upgraded."""
    read_solver(folder / "solver.prototxt")


KIND = Kind(seeds, read, one_file(as_messages, as_messages, messages.spoil))
