"""MarginInnerProduct by value (wy1iu/sphereface): psi by its definition, the gradient by the fork's formulas."""

from __future__ import annotations

from math import acos, cos, floor, hypot, pi

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig, spread

X, LABELS = spread((6, 3, 1, 1), -2, 2), np.array([2, 0, 1, 2, 3, 0.0])
TEXT = 'type: "MarginInnerProduct" margin_inner_product_param { num_output: 4 weight_filler { type: "xavier" } %s }'
DECAY = "base: 10 gamma: 0.5 power: 2 iteration: 1 lambda_min: 1.5"
TYPES = {1: "SINGLE", 2: "DOUBLE", 3: "TRIPLE", 4: "QUADRUPLE"}


def psi(cosine: float, margin: int) -> tuple[float, float]:
    """(-1)^k cos(m t) - 2 k, and its derivative by cos t, by differences."""
    k = min(floor(acos(cosine) * margin / pi), margin - 1)

    def value(c: float) -> float:
        return (-1) ** k * cos(margin * acos(c)) - 2 * k
    return value(cosine), (value(cosine + 1e-6) - value(cosine - 1e-6)) / 2e-6


@pytest.mark.parametrize("margin", [1, 2, 3, 4])
def test_products_and_gradients(margin: int) -> None:
    rig = Rig(TEXT % f"type: {TYPES[margin]} {DECAY}", [X, LABELS], 2)
    w = rig.layer.blobs[0].data / np.linalg.norm(rig.layer.blobs[0].data, axis=1, keepdims=True)
    tops = rig.forward()
    np.testing.assert_allclose(rig.layer.blobs[0].data, w, rtol=1e-6)
    assert tops[1] == pytest.approx(10 / (1 + 0.5 * 2) ** 2)  # the first pass after iteration 1
    gy = spread((6, 4), seed=3)
    (gx, _), (gw,) = rig.backward([gy, 0.0], [True, False])  # after a second pass, of iteration 3
    share, x = max(10 / (1 + 0.5 * 3) ** 2, 1.5), X.reshape(6, 3)
    for i, label in enumerate(LABELS.astype(int)):
        length = np.linalg.norm(x[i])
        value, slope = psi(x[i] @ w[label] / length, margin)
        expected = w @ x[i]
        gradient = sum(gy[i, j] * w[j] for j in range(4))
        if margin > 1:
            expected[label] = (length * value + tops[1][0] * expected[label]) / (1 + tops[1][0])
            on_x = (value - x[i] @ w[label] / length * slope) / length
            through = (slope * w[label] + on_x * x[i]) / hypot(slope, on_x)
            gradient = gradient + gy[i, label] * (through - w[label]) / (1 + share)
        np.testing.assert_allclose(tops[0][i], expected, rtol=1e-6)
        np.testing.assert_allclose(gx.reshape(6, 3)[i], gradient, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gw, gy.T @ x, rtol=1e-6)


def test_lambda_does_not_fall_below_its_least() -> None:
    text = TEXT % "type: QUADRUPLE base: 1000 gamma: 0.12 power: 1 iteration: 100000 lambda_min: 5"
    assert Rig(text, [X, LABELS], 2).forward()[1] == 5


@pytest.mark.parametrize(("text", "inputs", "said"), [
    ('type: "MarginInnerProduct"', [X, LABELS], "num_output"), (TEXT % "", [X, LABELS[:5]], "a label for each"),
    (TEXT % "", [X, LABELS + 2], "label 4"), (TEXT % "axis: 9", [X, LABELS], "axis 9")])
def test_what_cannot_be(text: str, inputs: list[np.ndarray], said: str) -> None:
    with pytest.raises(LayerError, match=said):
        Rig(text, inputs).forward()
