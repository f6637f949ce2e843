"""CenterLoss by value (ydwen/caffe-face)."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig, spread

X, LABELS = spread((5, 3, 1, 2), -2, 2), [2, 0, 2, 2, 3]
TEXT = 'type: "CenterLoss" center_loss_param { num_output: 5 center_filler { type: "xavier" } } %s'


@pytest.mark.parametrize(("options", "weight"), [("", 1.0), ("loss_weight: 0.008", 0.008)])
def test_centers_move_towards_their_items_whatever_the_loss_weight(options: str, weight: float) -> None:
    rig = Rig(TEXT % options, [X, np.array(LABELS)])
    centers, x = rig.layer.blobs[0].data.copy(), X.reshape(5, 6)
    assert centers.shape == (5, 6)
    expected = sum(((x[i] - centers[label]) ** 2).sum() for i, label in enumerate(LABELS)) / 10
    assert rig.forward()[0] == pytest.approx(expected)
    bottoms, (moved,) = rig.backward([weight], [True, False])
    for i, label in enumerate(LABELS):
        np.testing.assert_allclose(bottoms[0].reshape(5, 6)[i], weight * (x[i] - centers[label]) / 5)
    for c in range(5):
        mine = [i for i, label in enumerate(LABELS) if label == c]
        total = sum((centers[c] - x[i] for i in mine), np.zeros(6))
        np.testing.assert_allclose(moved[c], total / (1 + len(mine)), rtol=1e-6)


@pytest.mark.parametrize(("text", "inputs", "said"), [
    ('type: "CenterLoss"', [X, np.zeros(5)], "num_output"), (TEXT % "", [X, np.full(5, 5)], "label 5"),
    (TEXT % "", [X, np.zeros((5, 2))], "one label each"),
    ('type: "CenterLoss" center_loss_param { num_output: 5 axis: 2 }', [X, np.zeros(5)], "axis 2")])
def test_what_cannot_be(text: str, inputs: list[np.ndarray], said: str) -> None:
    with pytest.raises(LayerError, match=said):
        Rig(text, inputs).forward()
