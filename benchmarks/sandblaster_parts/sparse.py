"""Logistic regression with L1 on the example's images: OWL-QN's minimum beside scikit-learn's.

Two classes against its coordinate descent (liblinear; Yuan, Ho, Lin, JMLR 2012), which has no multinomial loss; ten
classes against SAGA.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from sandblaster_parts.convex import LAYERS, Multinomial
from sandblaster_parts.training import example, train

PAIR = """layer { name: "class" type: "Threshold" bottom: "label" top: "class" threshold_param { threshold: 4.5 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 1 bias_term: false } }
layer { name: "loss" type: "SigmoidCrossEntropyLoss" bottom: "ip" bottom: "class" top: "loss" }"""


class TwoClasses:
    """The objective in float64: mean logistic loss of labels above 4 against the others, and the L1 decay."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, l1: float) -> None:
        self.x, self.y, self.l1 = images, (labels > 4.5).astype(int), l1
        self.n_elems = images.shape[1]

    def whole(self, flat: np.ndarray) -> float:
        """The value."""
        scores = self.x @ flat
        return float(np.mean(np.logaddexp(0, scores) - self.y * scores) + self.l1 * np.abs(flat).sum())


def measure_sparse(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Our minimum against coordinate descent's with two classes, against SAGA's with ten."""
    from sklearn.linear_model import LogisticRegression

    images, labels = example(Path(args.data))
    rows = []
    for l1 in (1e-2, 1e-3, 1e-4):
        exact = TwoClasses(images, labels, l1)
        peer = LogisticRegression(l1_ratio=1.0, solver="liblinear", C=1 / (l1 * len(labels)), tol=1e-10,
                                  max_iter=5000, fit_intercept=False, random_state=0).fit(images, exact.y)
        rows.append(compare(args, "coordinate descent", PAIR, exact, peer.coef_.ravel(), peer.coef_.size))
    exact = Multinomial(images, labels, l1=1e-3)
    peer = LogisticRegression(l1_ratio=1.0, solver="saga", C=1 / (exact.l1 * len(labels)), tol=1e-7, max_iter=args.saga)
    peer.fit(images, labels)
    theirs = np.concatenate([peer.coef_.ravel(), peer.intercept_])
    return [*rows, compare(args, "SAGA", LAYERS, exact, theirs, peer.coef_.size)]


def compare(args: argparse.Namespace, who: str, layers: str, exact: TwoClasses | Multinomial, theirs: np.ndarray,
            n_weights: int) -> dict[str, Any]:
    """One row: train until the tolerance or the steps end, and put the values side by side."""
    text = f'regularization_type: "L1" weight_decay: {exact.l1} lbfgs_param {{ tolerance: 1e-6 }}'
    ours, values = train(args, layers, text, args.sparse_steps, exact)
    least, mine = exact.whole(theirs), exact.whole(ours)
    near = {limit: next((passes for passes, value in values if value <= least * (1 + limit)), None)
            for limit in (1e-4, 1e-6, 1e-8)}
    zeros = [float((found[:n_weights] == 0).mean()) for found in (ours, theirs)]
    print(f"L1 {exact.l1:g}: {who} {least:.12f}, ours {mine / least - 1:+.2e} relative after {values[-1][0]} passes; "
          f"to 1e-4, 1e-6, 1e-8: {list(near.values())}; weights that are 0: {zeros[0]:.3f}, {zeros[1]:.3f}", flush=True)
    return {"part": "convex", "decay": "L1", "factor": exact.l1, "peer": who, "minimum": least, "ours": mine,
            "relative": mine / least - 1, "passes": near, "passes_in_all": values[-1][0], "zeros": zeros}
