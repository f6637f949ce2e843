"""Gradient cases of losses."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

SCORES = (4, 3)
LABELS = np.array([0, 2, 1, 2.0])
IMAGE_SCORES = (2, 3, 2, 2)
IMAGE_LABELS = np.array([0, 2, 1, -1, 2, 0, 1, 1.0]).reshape(2, 2, 2)
IGNORE = "loss_param { ignore_label: -1 normalization: "
NORMALIZATIONS = ("FULL", "VALID", "BATCH_SIZE", "NONE", "PRE_FIXED pre_fixed_normalizer: 3")
PAIR = (spread((4, 3), seed=1), spread((4, 3), seed=2), np.array([1, 0, 1, 0.0]))
TARGETS = np.array([[0, 1, 0.3], [1, 1, 0], [0, 0.5, 1], [1, 0, 0]])
GAINS = spread((3, 3), 0.1, 1.0, seed=3)


def contrastive(options: str) -> Case:
    """A contrastive loss on two-dimensional bottoms."""
    return Case(f'type: "ContrastiveLoss" contrastive_loss_param {{ {options} }}', PAIR, gradient=(0, 1),
                label=options)


CASES: dict[str, list[Case]] = {
    "EuclideanLoss": [
        Case('type: "EuclideanLoss"', (spread((3, 2), seed=1), spread((3, 2), seed=2))),
        Case('type: "EuclideanLoss"', (spread((2, 2, 2, 1), seed=1), spread((2, 4), seed=2)), label="shapes differ"),
    ],
    "HingeLoss": [
        Case('type: "HingeLoss"', (spread(SCORES, -2, 2), LABELS), gradient=(0,)),
        Case('type: "HingeLoss" hinge_loss_param { norm: L2 }', (spread(SCORES, -2, 2), LABELS), gradient=(0,)),
    ],
    "MultinomialLogisticLoss": [
        Case('type: "MultinomialLogisticLoss"', (spread(SCORES, 0.2, 0.9), LABELS), gradient=(0,)),
        Case('type: "MultinomialLogisticLoss"', (spread((4, 3, 1, 1), 0.2, 0.9), LABELS), gradient=(0,), label="image"),
    ],
    # The gradient leaves out what the 1e-4 beside the distance adds, so only "legacy" and large distances are exact.
    "ContrastiveLoss": [contrastive("margin: 1.9 legacy_version: true"), contrastive("margin: 0.1")],
    "SigmoidCrossEntropyLoss": [
        Case('type: "SigmoidCrossEntropyLoss"', (spread(SCORES, -3, 3), TARGETS), gradient=(0,)),
        *[Case(f'type: "SigmoidCrossEntropyLoss" {IGNORE} {mode} }}',
               (spread((2, 2, 2, 1), -3, 3), np.array([0, 1, -1, 1, 1, -1, 0, 1.0]).reshape(2, 2, 2, 1)), gradient=(0,),
               label=mode) for mode in NORMALIZATIONS],
        *[Case(f'type: "SigmoidCrossEntropyLoss" loss_param {{ {given} }}', (spread(SCORES, -3, 3), TARGETS),
               gradient=(0,), label=given) for given in ("normalize: true", "normalize: false")],
    ],
    "InfogainLoss": [
        Case('type: "InfogainLoss"', (spread(SCORES, -2, 2), LABELS, GAINS), gradient=(0,), tops=(0,), batch=False),
        *[Case(f'type: "InfogainLoss" {IGNORE} {mode} }}', (spread(IMAGE_SCORES, -2, 2), IMAGE_LABELS, GAINS),
               gradient=(0,), tops=(0,), n_tops=2, batch=False, label=mode)
          for mode in NORMALIZATIONS],
        Case('type: "InfogainLoss" infogain_loss_param { axis: -1 }',
             (spread((2, 2, 3), -2, 2), np.array([[0, 1], [2, 2.0]]), GAINS), gradient=(0,), batch=False, label="axis"),
    ],
}

NO_GRADIENT: dict[str, str] = {}
