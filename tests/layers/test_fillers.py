"""Fillers: Caffe's numbers, their moments, and the errors."""

from __future__ import annotations

import tracemalloc
import zlib

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.base.fillers import fill, uniform
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels.cpu.random_numbers import Layers, exponential_layers, normal_layers
from scaffe.proto import caffe_pb2
from tests.reference import fillers as reference

SEED = 1701


def filled(shape: tuple[int, ...], dtype: type = np.float32, **options) -> np.ndarray:
    """A new array filled from a FillerParameter with these fields."""
    array = np.full(shape, np.nan, dtype)
    fill(array, caffe_pb2.FillerParameter(**options), Stream(SEED))
    return array


def test_constant() -> None:
    assert (filled((2, 3), value=1.5) == 1.5).all()
    assert (filled((2, 3), type="constant") == 0).all()


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.3, 0.2), (5, 7), (-1e-3, 1e-3)])
def test_uniform_is_caffes(low: float, high: float) -> None:
    got = filled((4, 3, 5, 5), type="uniform", min=low, max=high)
    np.testing.assert_array_equal(got, reference.uniform(SEED, (4, 3, 5, 5), low, high))


@pytest.mark.parametrize(("norm", "n"), [("FAN_IN", 75), ("FAN_OUT", 100), ("AVERAGE", 87.5)])
def test_xavier_is_caffes(norm: str, n: float) -> None:
    got = filled((4, 3, 5, 5), type="xavier", variance_norm=norm)
    scale = np.sqrt(np.float32(3) / np.float32(n))
    np.testing.assert_array_equal(got, reference.uniform(SEED, (4, 3, 5, 5), -scale, scale))


def test_xavier_of_a_vector() -> None:
    scale = np.sqrt(np.float32(3))  # fan in of a vector is 1
    np.testing.assert_array_equal(filled((8,), type="xavier"), reference.uniform(SEED, (8,), -scale, scale))


def test_a_value_that_rounds_up_to_the_end_is_drawn_again() -> None:
    class Full(Stream):
        """Three draws, of which the first is the largest there is."""

        def draw(self, n_elems: int) -> np.ndarray:
            taken, self.left = self.left[:n_elems], self.left[n_elems:]
            return np.array(taken, np.uint32)

    stream = Full(0)
    stream.left = [2**32 - 1, 0, 2**31]
    array = np.empty(2, np.float32)
    fill(array, caffe_pb2.FillerParameter(type="uniform"), stream)
    np.testing.assert_array_equal(array, [0, np.nextafter(np.float32(0.5), np.float32(1))])


def test_large_arrays_continue_the_stream() -> None:
    stream, one = Stream(SEED), caffe_pb2.FillerParameter(type="uniform")
    whole, first, second = np.empty(200_000, np.float32), np.empty(70_001, np.float32), np.empty(129_999, np.float32)
    fill(whole, one, Stream(SEED))
    fill(first, one, stream)
    fill(second, one, stream)
    np.testing.assert_array_equal(whole, np.concatenate([first, second]))


def test_strided_arrays_are_filled_in_caffes_order() -> None:
    view = np.moveaxis(np.zeros((2, 4, 5, 3), np.float32), -1, 1)
    fill(view, caffe_pb2.FillerParameter(type="uniform"), Stream(SEED))
    np.testing.assert_array_equal(view, filled((2, 3, 4, 5), type="uniform"))


@pytest.mark.parametrize("kind", ["constant", "uniform", "gaussian"])
def test_images_with_channels_last_are_filled_without_a_copy_of_all(kind: str) -> None:
    images, options = np.empty((50, 40, 40, 3), np.float32), {"type": kind, "std": 2, "max": 3, "value": 5}
    view = images.transpose(0, 3, 1, 2)
    fill(view[:1], caffe_pb2.FillerParameter(**options), Stream(SEED))  # what is kept for all is made
    stream = Stream(SEED)
    tracemalloc.start()
    fill(view, caffe_pb2.FillerParameter(**options), stream)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(view, filled((50, 3, 40, 40), **options))
    assert peak < images.nbytes // 2


def test_gaussian_is_caffes() -> None:
    """Against boost 1.74's normal_distribution<float> over mt19937(1701), printed by a C++ program."""
    stream, got = Stream(SEED), np.empty(1_000_000, np.float32)
    fill(got, caffe_pb2.FillerParameter(type="gaussian"), stream)
    first = [-0.10926592350006104, -1.6719402074813843, -0.20477624237537384, -0.5271481275558472,
             -1.2934644222259521, 0.5729042887687683]
    np.testing.assert_array_equal(got[:6], np.array(first, np.float32))
    assert zlib.crc32(got.tobytes()) == 566844039
    scaled = filled((6,), type="gaussian", mean=2, std=0.25)
    np.testing.assert_array_equal(scaled, got[:6] * np.float32(0.25) + np.float32(2))


@pytest.mark.parametrize("layers", [normal_layers(), exponential_layers()], ids=["normal", "exponential"])
def test_ziggurat_layers_have_one_area(layers: Layers) -> None:
    x, heights = layers.x_wide[:-1], layers.rise.astype(float)
    np.testing.assert_allclose(x[1:] * heights[1:], (x * heights)[0], rtol=3e-5)
    assert (np.diff(layers.x_wide) < 0).all()


def test_gaussian_moments() -> None:
    got = filled((400, 500), type="gaussian", mean=2, std=0.5).astype(np.float64)
    z = (got - 2) / 0.5
    assert abs(z.mean()) < 0.01
    assert abs(z.var() - 1) < 0.02
    assert abs((z**3).mean()) < 0.03
    assert abs((z**4).mean() - 3) < 0.1
    assert abs((np.abs(z) < 1).mean() - 0.6827) < 0.005
    assert np.abs(z).max() > 3.8


def test_gaussian_sparse_keeps_a_mean_number_of_inputs() -> None:
    got = filled((100, 400), type="gaussian", std=1, sparse=15)
    assert abs((got != 0).sum() / 400 - 15) < 0.6
    assert not filled((10, 10), type="gaussian", sparse=0).any()


@pytest.mark.parametrize(("norm", "n"), [("FAN_IN", 200), ("FAN_OUT", 500), ("AVERAGE", 350)])
def test_msra_deviation(norm: str, n: int) -> None:
    got = filled((500, 200), type="msra", variance_norm=norm)
    assert got.std() == pytest.approx(np.sqrt(2 / n), rel=0.02)


def test_positive_unitball() -> None:
    got = filled((3, 2, 5), type="positive_unitball")
    raw = reference.uniform(SEED, (3, 10), 0, 1)
    np.testing.assert_allclose(got.reshape(3, 10), raw / raw.sum(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(got.sum(axis=(1, 2)), 1, rtol=1e-6)


@pytest.mark.parametrize("width", [1, 3, 4])
def test_bilinear(width: int) -> None:
    half = -(-width // 2)
    centre = (width - 1) / (2 * half)
    tent = [1 - abs(i / half - centre) for i in range(width)]
    expected = np.array([[a * b for b in tent] for a in tent])
    got = filled((2, 1, width, width), type="bilinear")
    np.testing.assert_allclose(got, np.broadcast_to(expected, got.shape), rtol=1e-6)


@pytest.mark.parametrize(("shape", "options"), [
    ((2,), {"type": "nonsense"}), ((0,), {"type": "uniform"}), ((2,), {"type": "uniform", "min": 2, "max": 1}),
    ((2,), {"type": "gaussian", "std": 0}), ((2, 2), {"type": "gaussian", "sparse": 3}), ((2,), {"sparse": 1}),
    ((2,), {"type": "gaussian", "sparse": -2}), ((2, 2), {"type": "bilinear"}), ((1, 1, 2, 3), {"type": "bilinear"})])
def test_impossible(shape: tuple[int, ...], options: dict) -> None:
    with pytest.raises(LayerError):
        filled(shape, **options)


def test_a_range_wider_than_the_type_is_refused() -> None:
    """No draw would fall inside, and Caffe's loop and ours would never end."""
    with pytest.raises(LayerError, match="finite max - min"):
        uniform(np.empty(2, np.float32), -3e38, 3e38, Stream(1))
    wide = np.empty(2, np.float64)
    uniform(wide, -3e38, 3e38, Stream(1))
    assert np.isfinite(wide).all()
