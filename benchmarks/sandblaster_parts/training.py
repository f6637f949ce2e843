"""Trains a convex net on the example's images by our L-BFGS, and follows its value in float64."""

from __future__ import annotations

import argparse
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.data.sources.lmdb import LmdbSource
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver

DATA = """layer {{ name: "train" type: "Data" top: "data" top: "label"
  transform_param {{ scale: 0.00390625 }} data_param {{ source: "{data}/train_lmdb" batch_size: 250 backend: LMDB }} }}
"""


class Exact(Protocol):
    """An objective in float64."""

    n_elems: int

    def whole(self, flat: np.ndarray) -> float:
        """The value at parameters (n_elems,), its decay included."""


def example(data: Path, which: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """The training (or test) images (n, pixels) as the net sees them, in float64, and their labels."""
    source = LmdbSource(data / f"{which}_lmdb")
    images, labels = [], []
    for run in source.read(np.arange(source.n_records)):
        width = int(np.prod(run.shape))
        images += [run.pixels[start:start + width] for start in run.starts]
        labels += list(run.labels)
    source.close()
    return np.array(images, np.float64) / 256, np.array(labels)


def train(args: argparse.Namespace, layers: str, text: str, n_steps: int,
          exact: Exact) -> tuple[np.ndarray, list[tuple[int, float]]]:
    """Train a net of one InnerProduct.

    Args:
        args: ``data``, ``portion`` and ``threads`` count.
        layers: the net's text behind its data layer.
        text: more of the solver's text.
        n_steps: at most.
        exact: the objective.

    Returns:
        the parameters (n_elems,), and (passes, exact value) after each step.
    """
    param = caffe_pb2.SolverParameter()
    text_format.Parse(f'type: "LBFGS" base_lr: 1 lr_policy: "fixed" max_iter: {n_steps} random_seed: 1 '
                      f'snapshot_after_train: false lbfgs_param {{ portion: {args.portion} }} display: 0', param)
    text_format.Merge(text, param)
    text_format.Parse(DATA.format(data=args.data) + layers, param.net_param)
    options = Namespace(strategy="auto", reduce="auto", wire="", scal="strong", threads=args.threads, readers=1,
                        level=0, stage="", gpu="", allow_nan=False, skip_bad_records=0, servers=0, deterministic=False)
    log.silence(True)
    with tempfile.TemporaryDirectory() as folder:
        param.snapshot_prefix = f"{folder}/run"
        solver = build_solver(Communicator.single(), param, options)
        watch = Watch(exact)
        solver.observers.append(watch)
        solver.solve()
        solver.net.close()
    log.silence(False)
    return solver.net.params.data[:exact.n_elems].astype(np.float64), watch.values


class Watch:
    """After each step: passes so far, and the exact value."""

    def __init__(self, exact: Exact) -> None:
        self._exact, self.values = exact, []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def after_iteration(self, solver: Any) -> None:
        """See Observer."""
        coordinator = solver.strategy._rank.coordinator
        x = solver.strategy._rank.host._shard.vectors["x"][:self._exact.n_elems].astype(np.float64)
        self.values.append((coordinator.optimiser.progress.n_evaluations, self._exact.whole(x)))
