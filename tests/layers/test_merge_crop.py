"""MergeCrop by value (naibaf7/caffe), and what it refuses; its gradients are in cases_forks.py."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig, spread

SMALL, LARGE = spread((2, 2, 3, 2)), spread((2, 3, 6, 4), seed=1)
CUBE = spread((1, 2, 2, 2, 2)), spread((1, 2, 4, 2, 5), seed=1)


def test_the_middle_beside_the_smaller() -> None:
    (got,) = Rig('type: "MergeCrop"', [SMALL, LARGE]).forward()
    np.testing.assert_array_equal(got, np.concatenate([SMALL, LARGE[:, :, 1:4, 1:3]], axis=1))
    (added,) = Rig('type: "MergeCrop" mergecrop_param { operation: ADD }', CUBE).forward()
    np.testing.assert_array_equal(added, CUBE[0] + CUBE[1][:, :, 1:3, :, 1:3])
    (one,) = Rig('type: "MergeCrop" mergecrop_param { operation: ADD forward: false }', CUBE).forward()
    np.testing.assert_array_equal(one, CUBE[1][:, :, 1:3, :, 1:3])


def test_the_larger_has_no_gradient_unless_asked_for() -> None:
    gradients, _ = Rig('type: "MergeCrop"', [SMALL, LARGE]).backward([np.ones((2, 5, 3, 2))])
    assert gradients[0].min() == 1 and not gradients[1].any()


@pytest.mark.parametrize(("options", "inputs", "said"), [
    ("forward: [true, true, true]", [SMALL, LARGE], "3 times forward"), ("", [LARGE, SMALL], "no shorter"),
    ("operation: ADD", [SMALL, LARGE], "as many channels")])
def test_what_cannot_be(options: str, inputs: list[np.ndarray], said: str) -> None:
    with pytest.raises(LayerError, match=said):
        Rig(f'type: "MergeCrop" mergecrop_param {{ {options} }}', inputs)
