"""BroadcastMul and MaskPooling by value."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig, spread

X = spread((2, 3, 4, 5), -2, 2)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1, 1)])
@pytest.mark.parametrize("first", [False, True])
def test_broadcast_mul_takes_its_bottoms_in_either_order(shape: tuple[int, ...], first: bool) -> None:
    factors = spread(shape, seed=3)
    got = Rig('type: "BroadcastMul"', [factors, X] if first else [X, factors]).forward()[0]
    for n, c in np.ndindex(2, 3):
        np.testing.assert_allclose(got[n, c], X[n, c] * factors.reshape(2, 3)[n, c])


def test_mask_pooling() -> None:
    mask = spread((2, 1, 4, 5), seed=3)
    got = Rig('type: "MaskPooling"', [X, mask]).forward()[0]
    for c in range(3):
        np.testing.assert_allclose(got[:, c], X[:, c] * mask[:, 0])


@pytest.mark.parametrize(("layer_type", "shape"), [("BroadcastMul", (2, 4)), ("BroadcastMul", (1, 3)),
                                                   ("MaskPooling", (2, 3, 4, 5)), ("MaskPooling", (2, 1, 5, 4))])
def test_what_cannot_be(layer_type: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError, match="wants images"):
        Rig(f'type: "{layer_type}"', [X, np.zeros(shape)])
    with pytest.raises(LayerError, match="of its own"):
        Rig(f'type: "{layer_type}"', [X, np.zeros((2, 3) if layer_type == "BroadcastMul" else (2, 1, 4, 5))],
            in_place=True)
