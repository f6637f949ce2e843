"""Layers that pick by index or rank: ArgMax, BatchReindex, Filter, Embed."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import Rig, spread
from tests.reference import shapes as reference

IMAGE = spread((2, 3, 4, 2))


def run(text: str, *inputs: np.ndarray) -> np.ndarray:
    """The first top."""
    return Rig(text, list(inputs)).forward()[0]


@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("values", [False, True])
def test_argmax_over_items(top_k: int, values: bool) -> None:
    x = np.round(IMAGE * 3)  # with ties
    options = f"top_k: {top_k} out_max_val: {str(values).lower()}"
    got = run(f'type: "ArgMax" argmax_param {{ {options} }}', x)
    assert got.shape == (2, 2 if values else 1, top_k, 1)
    for item, rows in zip(x.reshape(2, -1), got[..., 0], strict=True):
        places = reference.argmax(list(item), top_k)
        np.testing.assert_array_equal(rows[0], places)
        if values:
            np.testing.assert_array_equal(rows[1], item[places])


@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("values", [False, True])
def test_argmax_along_an_axis(axis: int, values: bool) -> None:
    x = np.round(IMAGE * 3)
    options = f"top_k: 2 axis: {axis} out_max_val: {str(values).lower()}"
    got = np.moveaxis(run(f'type: "ArgMax" argmax_param {{ {options} }}', x), axis, -1)
    runs = np.moveaxis(x, axis, -1)
    for place in np.ndindex(runs.shape[:-1]):
        places = reference.argmax(list(runs[place]), 2)
        np.testing.assert_array_equal(got[place], runs[place][places] if values else places)


def test_argmax_errors_and_shape() -> None:
    assert run('type: "ArgMax"', spread((3, 5))).shape == (3, 1, 1)
    for options in ("top_k: 0", "top_k: 25", "top_k: 4 axis: 1", "axis: 7"):
        with pytest.raises(LayerError):
            Rig(f'type: "ArgMax" argmax_param {{ {options} }}', [IMAGE])


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 2, 2)])
def test_batch_reindex(shape: tuple[int, ...]) -> None:
    x, places = spread(shape), np.array([2.0, 0, 0, 1, 2, 2])
    np.testing.assert_array_equal(run('type: "BatchReindex"', x, places), x[[2, 0, 0, 1, 2, 2]])


@pytest.mark.parametrize("place", [-1, 3])
def test_batch_reindex_out_of_range(place: int) -> None:
    with pytest.raises(LayerError, match=f"index {place}"):
        run('type: "BatchReindex"', spread((3, 2)), np.array([0.0, place]))


def test_filter_passes_what_the_selector_does() -> None:
    x = spread((4, 3, 2, 2))
    rig = Rig('type: "Filter"', [x, np.arange(4.0), np.array([0, 1, 0, 0.5])], n_tops=2)
    assert rig.top[0].shape == x.shape
    first, second = rig.forward()
    np.testing.assert_array_equal(first, x[[1, 3]])
    np.testing.assert_array_equal(second, [1, 3])
    rig.inputs[2][:] = 0
    assert rig.forward()[0].shape == (0, 3, 2, 2)
    bottoms, _ = rig.backward([1.0, 1.0], [True, True, False])
    assert not bottoms[0].any()


def test_filter_errors() -> None:
    for inputs, n_tops in (([IMAGE, np.ones(3)], 1), ([IMAGE, np.ones((2, 2))], 1), ([IMAGE, np.ones(2)], 2)):
        with pytest.raises(LayerError):
            Rig('type: "Filter"', inputs, n_tops)


def test_embed() -> None:
    text = 'type: "Embed" embed_param { input_dim: 5 num_output: 3 weight_filler { type: "uniform" } '
    rig = Rig(text + 'bias_filler { type: "constant" value: 2 } }', [np.array([[4, 0], [1, 4.0]])])
    weights = rig.layer.blobs[0].data
    assert weights.shape == (5, 3)
    np.testing.assert_allclose(rig.forward()[0], weights[[[4, 0], [1, 4]]] + 2)
    _, (gw, gb) = rig.backward([1.0], [False])
    np.testing.assert_array_equal(gw[:, 0], [1, 1, 0, 0, 2])
    np.testing.assert_array_equal(gb, [4, 4, 4])


def test_embed_errors() -> None:
    with pytest.raises(LayerError, match="input_dim"):
        Rig('type: "Embed" embed_param { num_output: 3 }', [np.zeros(2)])
    rig = Rig('type: "Embed" embed_param { input_dim: 5 num_output: 3 }', [np.array([5.0])])
    with pytest.raises(LayerError, match="index 5"):
        rig.forward()
