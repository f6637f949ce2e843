"""Multinomial logistic regression on the example's images: our minimum and passes beside SciPy's and scikit-learn's."""

from __future__ import annotations

import argparse
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.data.sources.lmdb import LmdbSource
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver

N_CLASSES = 10
NET = """layer {{ name: "train" type: "Data" top: "data" top: "label"
  transform_param {{ scale: 0.00390625 }} data_param {{ source: "{data}/train_lmdb" batch_size: 250 backend: LMDB }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: 10 }}
  param {{ lr_mult: 1 decay_mult: 1 }} param {{ lr_mult: 1 decay_mult: 0 }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}"""


class Objective:
    """The same objective in float64: mean cross-entropy and the decay of the weights, not of the biases."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, l2: float = 0.0, l1: float = 0.0) -> None:
        self.x, self.y, self.l2, self.l1 = images, labels.astype(int), l2, l1
        self.n_calls = 0

    def split(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (10, pixels) and biases (10,)."""
        n = self.x.shape[1] * N_CLASSES
        return flat[:n].reshape(N_CLASSES, -1), flat[n:n + N_CLASSES]

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient, of the smooth part and its L2 decay."""
        self.n_calls += 1
        w, b = self.split(flat)
        scores = self.x @ w.T + b
        scores -= scores.max(1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        rows = np.arange(len(self.y))
        errors = np.exp(logs)
        errors[rows, self.y] -= 1
        errors /= len(self.y)
        gradient = np.concatenate([(errors.T @ self.x + self.l2 * w).ravel(), errors.sum(0)])
        return float(-logs[rows, self.y].mean() + self.l2 / 2 * (w * w).sum()), gradient

    def whole(self, flat: np.ndarray) -> float:
        """The value with the L1 decay too."""
        return self(flat)[0] + self.l1 * float(np.abs(self.split(flat)[0]).sum())


def measure_convex(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Our minimum against SciPy's L-BFGS-B with L2, against scikit-learn's SAGA with L1.

    Its coordinate descent (liblinear) has no multinomial loss.
    """
    from scipy.optimize import minimize
    from sklearn.linear_model import LogisticRegression

    images, labels = example(Path(args.data))
    rows, n = [], images.shape[1] * N_CLASSES + N_CLASSES
    for l2 in (1e-1, 1e-2, 1e-3):
        exact = Objective(images, labels, l2=l2)
        best = minimize(exact, np.zeros(n), jac=True, method="L-BFGS-B",
                        options={"maxcor": 10, "maxiter": 5000, "maxfun": 9000, "ftol": 1e-16, "gtol": 1e-10}).fun
        ours, values, _ = train(args, f"weight_decay: {l2} lbfgs_param {{ tolerance: 1e-7 }}", 1500, exact)
        target = best * (1 + 1e-8)
        theirs = passes_to(exact, n, target)
        mine = next((passes for passes, value in values if value <= target), None)
        rows.append({"part": "convex", "decay": "L2", "factor": l2, "minimum": best, "ours": exact.whole(ours),
                     "relative": exact.whole(ours) / best - 1, "passes": mine, "scipy_passes": theirs,
                     "passes_in_all": values[-1][0]})
        print(f"L2 {l2:g}: minimum {best:.12f}, ours {rows[-1]['relative']:+.2e} relative; passes to 1e-8: {mine} "
              f"of {values[-1][0]}, SciPy's {theirs}", flush=True)
    for l1 in (1e-3,):
        exact = Objective(images, labels, l1=l1)
        text = f'regularization_type: "L1" weight_decay: {l1} lbfgs_param {{ tolerance: 1e-6 }}'
        ours, _, _ = train(args, text, 600, exact)
        peer = LogisticRegression(l1_ratio=1.0, solver="saga", C=1 / (l1 * len(labels)), tol=1e-7, max_iter=args.saga)
        peer.fit(images, labels)
        theirs = exact.whole(np.concatenate([peer.coef_.ravel(), peer.intercept_]))
        zeros = float((exact.split(ours)[0] == 0).mean()), float((peer.coef_ == 0).mean())
        rows.append({"part": "convex", "decay": "L1", "factor": l1, "minimum": theirs, "ours": exact.whole(ours),
                     "relative": exact.whole(ours) / theirs - 1, "zeros": zeros})
        print(f"L1 {l1:g}: scikit-learn's {theirs:.10f}, ours {rows[-1]['relative']:+.2e} relative; weights that are "
              f"0: {zeros[0]:.3f}, {zeros[1]:.3f}")
    return rows


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


def passes_to(objective: Objective, n_elems: int, target: float) -> int | None:
    """SciPy's evaluations until its iterate is at most the target."""
    from scipy.optimize import minimize

    objective.n_calls, found = 0, []

    def after(x: np.ndarray) -> None:
        calls = objective.n_calls
        found.append((calls, objective.whole(x)))
        objective.n_calls = calls

    minimize(objective, np.zeros(n_elems), jac=True, method="L-BFGS-B", callback=after,
             options={"maxcor": 10, "maxiter": 5000, "maxfun": 9000, "ftol": 1e-16, "gtol": 1e-10})
    return next((calls for calls, value in found if value <= target), None)


def train(args: argparse.Namespace, text: str, n_steps: int,
          exact: Objective) -> tuple[np.ndarray, list[tuple[int, float]], int]:
    """Train the net. Returns the parameters, (passes, exact value) after each step, and how many steps there were."""
    param = caffe_pb2.SolverParameter()
    text_format.Parse(f'type: "LBFGS" base_lr: 1 lr_policy: "fixed" max_iter: {n_steps} random_seed: 1 '
                      f'snapshot_after_train: false lbfgs_param {{ portion: {args.portion} }} display: 0', param)
    text_format.Merge(text, param)
    text_format.Parse(NET.format(data=args.data), param.net_param)
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
    data = solver.net.params.data
    return flat_of(data), watch.values, solver.iteration


def flat_of(data: np.ndarray) -> np.ndarray:
    """Weights and biases, without the padding after them."""
    n = len(data) // 16 * 16
    n_weights = 28 * 28 * N_CLASSES
    return np.concatenate([data[:n_weights], data[n_weights:n][:N_CLASSES]]).astype(np.float64)


class Watch:
    """After each step: passes so far, and the exact value."""

    def __init__(self, exact: Objective) -> None:
        self._exact, self.values = exact, []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def after_iteration(self, solver: Any) -> None:
        """See Observer."""
        coordinator = solver.strategy._rank.coordinator
        x = solver.strategy._rank.host._shard.vectors["x"]
        self.values.append((coordinator.optimiser.progress.n_evaluations, self._exact.whole(flat_of(x))))
