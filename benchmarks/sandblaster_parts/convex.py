"""Multinomial logistic regression with L2 on the example's images: our minimum and passes beside SciPy's."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from figures import Figures, version

from sandblaster_parts.training import example, train

N_CLASSES = 10
COLUMNS = ("L2 decay", "minimum", "ours above it, relative", "our passes", "SciPy's evaluations", "our passes in all")
NOTE = "Logistic regression: passes until the objective is within 1e-8 relative of the minimum."
LAYERS = """layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 10 }
  param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 1 decay_mult: 0 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }"""


class Multinomial:
    """The objective in float64: mean cross-entropy and the decay of the weights, not of the biases."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, l2: float = 0.0, l1: float = 0.0) -> None:
        self.x, self.y, self.l2, self.l1 = images, labels.astype(int), l2, l1
        self.n_elems = (images.shape[1] + 1) * N_CLASSES
        self.n_calls = 0

    def split(self, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (10, pixels) and biases (10,)."""
        n = self.x.shape[1] * N_CLASSES
        return flat[:n].reshape(N_CLASSES, -1), flat[n:]

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
    """Our minimum, and the passes to come within 1e-8 relative of it, against SciPy's L-BFGS-B."""
    from scipy.optimize import minimize

    images, labels = example(Path(args.data))
    rows = []
    for l2 in (1e-1, 1e-2, 1e-3):
        exact = Multinomial(images, labels, l2=l2)
        best = minimize(exact, np.zeros(exact.n_elems), jac=True, method="L-BFGS-B",
                        options={"maxcor": 10, "maxiter": 5000, "maxfun": 9000, "ftol": 1e-16, "gtol": 1e-10}).fun
        ours, values = train(args, LAYERS, f"weight_decay: {l2} lbfgs_param {{ tolerance: 1e-7 }}", 1500, exact)
        target = best * (1 + 1e-8)
        theirs = passes_to(exact, target)
        mine = next((passes for passes, value in values if value <= target), None)
        rows.append({"part": "convex", "decay": "L2", "factor": l2, "minimum": best, "ours": exact.whole(ours),
                     "relative": exact.whole(ours) / best - 1, "passes": mine, "scipy_passes": theirs,
                     "passes_in_all": values[-1][0]})
    show(rows, args.keep)
    return rows


def show(rows: list[dict[str, Any]], keep: bool) -> None:
    """The table, a decay a row."""
    with Figures("lbfgs", COLUMNS, NOTE, keep, {"SciPy": version(sys.executable, "scipy")}, "convex") as table:
        for row in rows:
            table.add(f"{row['factor']:g}", f"{row['minimum']:.12f}", f"{row['relative']:+.1e}", row["passes"],
                      row["scipy_passes"], row["passes_in_all"])


def passes_to(objective: Multinomial, target: float) -> int | None:
    """SciPy's evaluations until its iterate is at most the target."""
    from scipy.optimize import minimize

    objective.n_calls, found = 0, []

    def after(x: np.ndarray) -> None:
        calls = objective.n_calls
        found.append((calls, objective.whole(x)))
        objective.n_calls = calls

    minimize(objective, np.zeros(objective.n_elems), jac=True, method="L-BFGS-B", callback=after,
             options={"maxcor": 10, "maxiter": 5000, "maxfun": 9000, "ftol": 1e-16, "gtol": 1e-10})
    return next((calls for calls, value in found if value <= target), None)
