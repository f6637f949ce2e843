"""Convolutions whose channels fill no whole SIMD vectors: each lane computes an image of its own instead."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.register_tiles import COLUMNS, register_tile
from scaffe.jit.simd import HAS_AVX512, LANES, transpose
from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.conv.image_lanes_gradient import WeightGradient
from scaffe.layers.kernels.cpu.conv.panels import is_fast
from scaffe.layers.kernels.cpu.conv.weight_gradients import FilteringPlan
from scaffe.layers.kernels.cpu.threads.parts import in_units, n_threads, part_from
from scaffe.layers.kernels.specs import ConvSpec

ROWS = 10 if HAS_AVX512 else 5
"""Output channels of a register tile, by two vectors of images: as many sums as fit beside the operands."""
GEOMETRY = ("n_images", "height", "width", "inputs", "out_height", "out_width", "outputs", "taps", "pad_y", "pad_x")
_whole, _half = register_tile(ROWS, has_runs=True), register_tile(ROWS, n_vectors=1, has_runs=True)
_NO_BIAS = np.zeros(COLUMNS, np.float32)  # of images, which are the tile's columns


class Filtering:
    """A ``weight_gradients.Filtering``, without a sum, of groups of as many images as a register tile has columns.

    A group's images are transposed into lanes, filtered and transposed back before the next group. The outputs are a
    multiple of ROWS.
    """

    def __init__(self, spec: ConvSpec, is_flipped: bool = False) -> None:
        self.spec, self._is_flipped = spec, is_flipped
        n, inputs, *image = spec.in_shape
        self._geometry = np.array([n, *image, inputs, *spec.out_spatial, spec.n_output, spec.kernel[0], *spec.pad])
        self._n_groups = -(-n // COLUMNS)
        self._bottom, self._top = (COLUMNS * int(np.prod(shape[1:])) for shape in (spec.in_shape, spec.out_shape))

    @property
    def weights_shape(self) -> tuple[int, ...]:
        return self.spec.n_output, *self.spec.kernel, self.spec.in_shape[1]

    def working_bytes(self) -> dict[str, int]:
        n_parts = self._n_parts()
        return {"bottom": 4 * n_parts * self._bottom, "top": 4 * n_parts * self._top}

    def transform_weights(self, w: np.ndarray, weights: np.ndarray) -> None:
        weights[...] = w[..., ::-1, ::-1].transpose(1, 2, 3, 0) if self._is_flipped else w.transpose(0, 2, 3, 1)

    def run(self, x: np.ndarray, weights: np.ndarray, b: np.ndarray, y: np.ndarray, added: np.ndarray | None = None,
            slope: float = 1) -> None:
        bytes_of, n_parts = self.working_bytes(), self._n_parts()
        bottoms, tops = (workspace(name, bytes_of[name]).view(np.float32).reshape(n_parts, -1)
                         for name in ("bottom", "top"))
        x, y, w = x.reshape(-1), y.reshape(-1), weights.reshape(-1)
        in_units(_filter, 1, self._n_groups, None, self._n_groups, x, self._geometry, w, b, np.float32(slope), y,
                 bottoms, tops)

    def _n_parts(self) -> int:
        return max(min(n_threads(), self._n_groups), 1)


@compiled(borrows=True)
def _filter(first: int, stop: int, n_groups: int, x: np.ndarray, geometry: np.ndarray, w: np.ndarray, b: np.ndarray,
            slope: float, y: np.ndarray, bottoms: np.ndarray, tops: np.ndarray) -> None:
    """Filter groups [first, stop) of COLUMNS images; the last one takes half as many lanes if these suffice. Each part
    of the groups has working memory of its own."""
    part = part_from(first, len(bottoms), n_groups)
    bottom, top = bottoms[part], tops[part]
    n, height, width, inputs, out_height, out_width, outputs = geometry[:7]
    n_bottom, n_top = height * width * inputs, out_height * out_width * outputs
    for group in range(first, stop):
        start = group * COLUMNS
        n_images = min(COLUMNS, n - start)
        lanes = COLUMNS if n_images > LANES else LANES
        transpose(x, start * n_bottom, n_bottom, (n_images, n_bottom), bottom, 0, lanes)
        for row in range(0, outputs, ROWS):
            for pixel in range(out_height * out_width):
                _filter_pixel(bottom, geometry, w, b, slope, lanes, row, pixel, top)
        transpose(top, 0, lanes, (n_top, n_images), y, start * n_top, n_top)


@compiled(inline="always")
def _filter_pixel(bottom: np.ndarray, geometry: np.ndarray, w: np.ndarray, b: np.ndarray, slope: float, lanes: int,
                  row: int, pixel: int, top: np.ndarray) -> None:
    """Compute ROWS outputs of one pixel, from ``row`` on. A filter's row within the image is one run of products."""
    height, width, inputs, _, out_width, outputs, taps, pad_y, pad_x = geometry[1:10]
    y, x = pixel // out_width - pad_y, pixel % out_width - pad_x
    left, right, first, stop = max(x, 0), min(x + taps, width), max(-y, 0), min(taps, height - y)
    to = (pixel * outputs + row) * lanes
    for i in range(ROWS):
        for m in range(lanes):
            top[to + i * lanes + m] = b[row + i]
    panel = ((y + first) * width + left) * inputs * lanes
    at = (row * taps * taps + first * taps + left - x) * inputs
    places = (at, taps * taps * inputs, (right - left) * inputs, panel, panel, 0, to, lanes,
              stop - first, taps * inputs, width * inputs * lanes)
    if lanes == COLUMNS:
        _whole(w, bottom, _NO_BIAS, top, True, slope, top, places)
    else:
        _half(w, bottom, _NO_BIAS, top, True, slope, top, places)


FEWEST_IMAGES = 16  # fewer leave lanes of the widest registers empty
FEWEST_INPUTS = 50  # numbers of a filter's row: shorter sums do not pay for loading and storing them


class Convolution(FilteringPlan):
    """A plan of a geometry for which ``supports`` holds."""

    def __init__(self, spec: ConvSpec) -> None:
        super().__init__(spec, Filtering, WeightGradient)


def supports(spec: ConvSpec) -> bool:
    """Whether a geometry's channels fill no whole vectors, and an image a lane is faster than padding them."""
    if len(spec.kernel) != 2 or spec.dtype != np.float32 or not is_fast():
        return False
    taps, (n, inputs) = spec.kernel[0], spec.in_shape[:2]
    is_plain = (spec.kernel, spec.stride, spec.dilation, spec.group) == ((taps, taps), (1, 1), (1, 1), 1)
    is_odd = inputs % LANES > 0 and spec.n_output % LANES > 0 and inputs % ROWS == spec.n_output % ROWS == 0
    return is_plain and is_odd and max(spec.pad) < taps and n >= FEWEST_IMAGES and taps * inputs >= FEWEST_INPUTS
