"""Insanity by value (happynear/caffe-windows)."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import SEED, Rig, spread

X = spread((3, 4, 2, 5), -2, 2)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("options", "low", "high"), [("", 5, 10), ("lb: 2 ub: 2.5", 2, 2.5),
                                                      ("lb: -3 ub: -1", -3, -1)])
def test_slopes_are_drawn_in_training(options: str, low: float, high: float, in_place: bool) -> None:
    rig = Rig(f'type: "Insanity" insanity_param {{ {options} }}', [X], in_place=in_place)
    y = rig.forward()[0]
    slopes = np.random.RandomState(SEED).randint(0, 1 << 32, X.size, np.uint64).reshape(X.shape) / 2**32
    slopes = low + (high - low) * slopes
    np.testing.assert_allclose(y, np.where(X > 0, X, X / slopes))
    np.testing.assert_allclose(rig.backward([np.full(X.shape, 3.0)])[0][0], np.where(X > 0, 3, 3 / slopes))


def test_the_mean_slope_in_testing() -> None:
    rig = Rig('type: "Insanity" insanity_param { lb: 3 ub: 8 }', [X], phase=1)
    np.testing.assert_allclose(rig.forward()[0], np.where(X > 0, X, X * (log(8) - log(3)) / 5))


@pytest.mark.parametrize(("options", "shape"), [("lb: 3 ub: 3", (2, 2)), ("lb: 0 ub: 3", (2, 2)), ("", (4,))])
def test_what_cannot_be(options: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(LayerError, match="wants bounds|two axes"):
        Rig(f'type: "Insanity" insanity_param {{ {options} }}', [np.zeros(shape)])
