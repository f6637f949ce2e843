"""The weights' gradient of a convolution with few input channels, such as a net's first one: an image a SIMD lane.

Each lane sums the products of its images; the lanes are added at the end.
"""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.simd import HAS_AVX512, LANES, simd_multiply_add, transpose
from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.conv.panels import is_fast
from scaffe.layers.kernels.cpu.threads.parts import in_units, n_threads, part_from
from scaffe.layers.kernels.specs import ConvSpec

ROWS, TAPS = 4 if HAS_AVX512 else 2, 5
"""Output channels and weights of a filter's row whose sums fit in registers together with the operands."""
MOST_INPUTS = 3
CHUNK_BYTES = 3 << 13
"""Tops' gradients that are read for all weights before the next ones, so that they stay in the first-level cache."""
GEOMETRY = ("n_images", "height", "width", "inputs", "out_height", "out_width", "outputs", "pad_y", "pad_x")
_sums = simd_multiply_add(ROWS, TAPS)


class FewInputs:
    """The ``Gradient`` of a geometry for which ``supports`` holds."""

    def __init__(self, spec: ConvSpec) -> None:
        n, inputs, *image = spec.in_shape
        self._weights = spec.weight_shape
        self._geometry = np.array([n, *image, inputs, *spec.out_spatial, spec.n_output, *spec.pad])
        self._n_groups = -(-n // LANES)
        padded = prod(length + 2 * pad for length, pad in zip(image, spec.pad, strict=True))
        self._bottom, self._top, self._sums = (
            LANES * n_each for n_each in (inputs * padded, prod(spec.out_shape[1:]), prod(spec.weight_shape)))

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        n_parts = self._n_parts()
        bottoms, tops, sums = (workspace(name, n_bytes).view(np.float32)
                               for name, n_bytes in self.working_bytes().items())
        in_units(_add_up, 1, self._n_groups, None, self._n_groups, x.reshape(-1), gy.reshape(-1), self._geometry,
                 bottoms.reshape(n_parts, -1), tops.reshape(n_parts, -1), sums)
        outputs, inputs = self._weights[:2]
        found = sums.reshape(self._n_groups, outputs // ROWS, TAPS, inputs, ROWS, TAPS, LANES).sum((0, -1))
        target = gw.reshape(outputs // ROWS, ROWS, inputs, TAPS, TAPS)
        found = found.transpose(0, 3, 2, 1, 4)
        target[...] = found if overwrite else target + found

    def working_bytes(self) -> dict[str, int]:
        n_parts = self._n_parts()
        return {"bottom": 4 * n_parts * self._bottom, "top": 4 * n_parts * self._top,
                "weights": 4 * self._n_groups * self._sums}

    def _n_parts(self) -> int:
        return max(min(n_threads(), self._n_groups), 1)


def supports(spec: ConvSpec) -> bool:
    """Whether the gradient of a geometry can be computed so, and faster than by oneDNN."""
    if len(spec.kernel) != 2 or spec.dtype != np.float32 or not is_fast():
        return False
    is_plain = (spec.kernel, spec.stride, spec.dilation, spec.group) == ((TAPS, TAPS), (1, 1), (1, 1), 1)
    is_odd = spec.in_shape[1] <= MOST_INPUTS and spec.n_output % LANES > 0 and spec.n_output % ROWS == 0
    return is_plain and is_odd and spec.in_shape[0] >= LANES


@compiled
def _add_up(first: int, stop: int, n_groups: int, x: np.ndarray, gy: np.ndarray, geometry: np.ndarray,
            bottoms: np.ndarray, tops: np.ndarray, sums: np.ndarray) -> None:
    """Sum up groups [first, stop) of LANES images. Each group has sums of its own, so that results do not depend on
    the number of threads; each part of the groups has working memory of its own."""
    part = part_from(first, len(bottoms), n_groups)
    bottom, top = bottoms[part], tops[part]
    n, height, width, inputs, out_height, out_width, outputs, pad_y, pad_x = geometry
    line, n_top = (width + 2 * pad_x) * inputs * LANES, out_height * out_width * outputs
    top_line = out_width * outputs * LANES
    at_once = max(CHUNK_BYTES // (4 * ROWS * LANES * out_width), 1)
    to = first * outputs * TAPS * TAPS * inputs * LANES
    sums[to:stop * outputs * TAPS * TAPS * inputs * LANES] = 0
    bottom[:] = 0
    for group in range(first, stop):
        n_images = min(LANES, n - group * LANES)
        if n_images < LANES:
            bottom[:] = 0
            top[:] = 0
        _lay_lines(x, group * LANES, n_images, geometry, bottom)
        transpose(gy, group * LANES * n_top, n_top, (n_images, n_top), top, 0, LANES)
        for row in range(0, outputs, ROWS):
            for y in range(0, out_height, at_once):
                for tap in range(TAPS):
                    for channel in range(inputs):
                        _sums(top, bottom, (
                            min(at_once, out_height - y), out_width, y * top_line + row * LANES, top_line,
                            outputs * LANES, (y + tap) * line + channel * LANES, line, inputs * LANES, LANES,
                            inputs * LANES), sums, to + (tap * inputs + channel) * ROWS * TAPS * LANES)
            to += TAPS * inputs * ROWS * TAPS * LANES


@compiled(inline="always")
def _lay_lines(x: np.ndarray, first: int, n_images: int, geometry: np.ndarray, bottom: np.ndarray) -> None:
    """Lay images side by side, one a lane, within their padding."""
    _, height, width, inputs, _, _, _, pad_y, pad_x = geometry
    each, line = height * width * inputs, width * inputs
    if pad_y == 0 and pad_x == 0:
        transpose(x, first * each, each, (n_images, each), bottom, 0, LANES)
        return
    for y in range(height):
        to = ((pad_y + y) * (width + 2 * pad_x) + pad_x) * inputs * LANES
        transpose(x, first * each + y * line, each, (n_images, line), bottom, to, LANES)
