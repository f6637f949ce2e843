"""Input, DummyData, Parameter and Silence."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import SEED, Rig, spread
from tests.reference.fillers import uniform

IMAGE_SHAPE = "shape { dim: 2 dim: 3 dim: 2 dim: 2 }"


def test_input_shapes() -> None:
    one = Rig(f'type: "Input" input_param {{ {IMAGE_SHAPE} }}', [], n_tops=2)
    assert [b.shape for b in one.top] == [(2, 3, 2, 2)] * 2
    each = Rig(f'type: "Input" input_param {{ {IMAGE_SHAPE} shape {{ dim: 2 }} }}', [], n_tops=2)
    assert [b.shape for b in each.top] == [(2, 3, 2, 2), (2,)]
    with pytest.raises(LayerError, match="shape"):
        Rig(f'type: "Input" input_param {{ {IMAGE_SHAPE} shape {{ dim: 2 }} }}', [], n_tops=3)


def test_input_keeps_what_the_caller_set() -> None:
    rig = Rig(f'type: "Input" input_param {{ {IMAGE_SHAPE} }}', [], n_tops=1)
    rig.top[0].reshape((1, 4))
    rig.top[0].data[...] = 3
    rig.layer.reshape([], rig.top)
    rig.layer.forward([], rig.top)
    np.testing.assert_array_equal(rig.top[0].data, np.full((1, 4), 3.0))


def test_dummy_data_draws_in_caffes_order_and_only_random_tops_anew() -> None:
    text = f'type: "DummyData" dummy_data_param {{ {IMAGE_SHAPE} data_filler {{ type: "uniform" }} '
    rig = Rig(text + 'data_filler { type: "constant" value: 3 } }', [], n_tops=2, dtype=np.float32)
    np.testing.assert_array_equal(rig.top[1].data, np.full((2, 3, 2, 2), 3))
    first, second = rig.forward()
    np.testing.assert_array_equal(first, uniform(SEED, (2, 3, 2, 2), 0, 1))
    np.testing.assert_array_equal(second, np.full((2, 3, 2, 2), 3))
    rig.top[1].data[...] = 7
    rig.layer.forward([], rig.top)
    assert (rig.top[0].data != first).any()
    assert (rig.top[1].data == 7).all()


def test_dummy_data_with_one_filler_fills_all_tops_with_it() -> None:
    """Labels too, as in Caffe: nets that give no filler of their own for them learn from noise, or from zeros."""
    shapes = "shape { dim: 3 dim: 5 } shape { dim: 7 }"
    rig = Rig(f'type: "DummyData" dummy_data_param {{ {shapes} data_filler {{ type: "uniform" max: 9 }} }}', [],
              n_tops=2, dtype=np.float32)
    drawn = uniform(SEED, (22,), 0, 9)
    for got, expected in zip(rig.forward(), (drawn[:15].reshape(3, 5), drawn[15:]), strict=True):
        np.testing.assert_array_equal(got, expected)
    rig = Rig(f'type: "DummyData" dummy_data_param {{ {shapes} data_filler {{ value: 4 }} }}', [], n_tops=2)
    assert all((top == 4).all() for top in rig.forward())
    rig = Rig(f'type: "DummyData" dummy_data_param {{ {shapes} }}', [], n_tops=2)
    assert not any(top.any() for top in rig.forward())


def test_dummy_data_old_shapes_and_no_filler() -> None:
    rig = Rig('type: "DummyData" dummy_data_param { num: 2 num: 3 channels: 4 height: 1 width: 5 }', [], n_tops=2)
    assert [b.shape for b in rig.top] == [(2, 4, 1, 5), (3, 4, 1, 5)]
    assert not rig.forward()[0].any()


@pytest.mark.parametrize("options", ["", "num: 2", f"num: 1 channels: 1 height: 1 width: 1 {IMAGE_SHAPE}",
                                     f"{IMAGE_SHAPE} {IMAGE_SHAPE}", IMAGE_SHAPE + " data_filler { }" * 2])
def test_dummy_data_errors(options: str) -> None:
    with pytest.raises(LayerError):
        Rig(f'type: "DummyData" dummy_data_param {{ {options} }}', [], n_tops=3)


def test_parameter_is_shown_and_learns() -> None:
    rig = Rig(f'type: "Parameter" parameter_param {{ {IMAGE_SHAPE} }}', [])
    value, gy = spread((2, 3, 2, 2)), spread((2, 3, 2, 2), seed=3)
    rig.layer.blobs[0].data[...] = value
    np.testing.assert_array_equal(rig.forward()[0], value)
    np.testing.assert_array_equal(rig.backward([gy])[1][0], gy)


def test_silence_zeroes_the_gradients_asked_for() -> None:
    rig = Rig('type: "Silence"', [spread((2, 3)), spread((2, 3))])
    for blob in rig.bottom:
        blob.diff[...] = 5
    bottoms, _ = rig.backward([], [True, False])
    assert not bottoms[0].any()
    assert (bottoms[1] == 5).all()
