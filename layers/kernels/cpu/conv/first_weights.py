"""The weights' gradient of a net's first convolution, whose few input channels make a filter's row contiguous.

With three channels, a row of the filter reads 3 · taps contiguous numbers of the image. Each of them times the
gradients of all outputs gives a row of the weights' gradient. A tile of rows by two vectors of outputs stays in
registers while the filter moves along a row of the image; no patches (im2col) are written.
"""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.loops import clear_elements, copy_elements
from scaffe.jit.register_tiles import COLUMNS, register_tile
from scaffe.jit.simd import HAS_AVX512
from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.conv.panels import is_fast
from scaffe.layers.kernels.cpu.threads.parts import LINE, in_units, n_threads, part_from
from scaffe.layers.kernels.specs import ConvSpec

SHORT, TALL = (8, 11) if HAS_AVX512 else (5, 6)
"""Rows of a register tile: numbers of a row of the filter."""
MOST_INPUTS, LEAST_USED = 4, 0.7
"""Most input channels, and the least used part of a register tile."""
MOST_GROUPS = 16  # groups of images, each with sums of its own, so that results do not depend on threads
_short, _tall = (register_tile(rows, has_pitch=True, has_x_pitch=True) for rows in (SHORT, TALL))
_NO_BIAS = np.zeros(COLUMNS, np.float32)
GEOMETRY = ("n_images", "height", "width", "inputs", "out_height", "out_width", "outputs", "taps_y", "taps_x",
            "stride_y", "stride_x", "pad_y", "pad_x", "rows", "tiles", "images")


class FirstWeights:
    """The ``Gradient`` of a geometry for which ``supports`` holds."""

    def __init__(self, spec: ConvSpec) -> None:
        n, inputs, *image = spec.in_shape
        rows, tiles = tiles_of(spec)
        each = -(-n // MOST_GROUPS)
        self._weights = spec.weight_shape
        self._geometry = np.array([n, *image, inputs, *spec.out_spatial, spec.n_output, *spec.kernel, *spec.stride,
                                   *spec.pad, rows, tiles, each])
        self._n_groups, self._line = -(-n // each), rows * tiles
        padded = prod(length + 2 * pad for length, pad in zip(image, spec.pad, strict=True))
        self._padded = -(-(padded * inputs + self._line) // LINE) * LINE  # the last tile reads beyond the end
        self._sums = spec.kernel[0] * self._line * spec.n_output

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        images, sums = (workspace(name, n_bytes).view(np.float32) for name, n_bytes in self.working_bytes().items())
        in_units(_add_up, 1, self._n_groups, None, self._n_groups, x.reshape(-1), gy.reshape(-1), self._geometry,
                 images.reshape(self._n_parts(), -1), sums)
        outputs, inputs, *kernel = self._weights
        total = sums.reshape(self._n_groups, kernel[0], self._line, outputs).sum(0)[:, :kernel[1] * inputs]
        found = total.reshape(*kernel, inputs, outputs).transpose(3, 2, 0, 1)
        target = gw.reshape(found.shape)
        target[...] = found if overwrite else target + found

    def working_bytes(self) -> dict[str, int]:
        return {"bottom": 4 * self._n_parts() * self._padded, "weights": 4 * self._n_groups * self._sums}

    def _n_parts(self) -> int:
        return min(n_threads(), self._n_groups)


def tiles_of(spec: ConvSpec) -> tuple[int, int]:
    """Rows of a tile, and the number of tiles that cover a row of the filter with the fewest rows in all."""
    line = spec.kernel[1] * spec.in_shape[1]
    rows = min((TALL, SHORT), key=lambda rows: -(-line // rows) * rows)
    return rows, -(-line // rows)


def supports(spec: ConvSpec) -> bool:
    """Whether the gradient of a geometry can be computed so, and faster than by oneDNN."""
    if len(spec.kernel) != 2 or spec.dtype != np.float32 or not is_fast() or spec.in_shape[0] == 0:
        return False
    is_plain = spec.group == 1 and max(spec.dilation) == 1 and max(spec.kernel) > 1
    is_first = spec.in_shape[1] <= MOST_INPUTS and spec.n_output % COLUMNS == 0
    return is_plain and is_first and spec.kernel[1] * spec.in_shape[1] / prod(tiles_of(spec)) >= LEAST_USED


@compiled(borrows=True)
def _add_up(first: int, stop: int, n_groups: int, x: np.ndarray, gy: np.ndarray, geometry: np.ndarray,
            images: np.ndarray, sums: np.ndarray) -> None:
    """Sum up groups [first, stop) of images, each into sums of its own, row by row of the top. Each part of the groups
    copies its images with their padding into an array of its own among ``images``."""
    padded = images[part_from(first, len(images), n_groups)]
    n, height, width, inputs, out_height, out_width, outputs, taps_y = geometry[:8]
    stride_y, stride_x, pad_y, pad_x, rows, tiles, each = geometry[9:16]
    line = (width + 2 * pad_x) * inputs
    clear_elements(padded, 0, padded.size)
    for group in range(first, stop):
        to = group * taps_y * rows * tiles * outputs
        clear_elements(sums, to, taps_y * rows * tiles * outputs)
        for image in range(group * each, min((group + 1) * each, n)):
            for y in range(height):
                copy_elements(x, (image * height + y) * width * inputs, padded, (pad_y + y) * line + pad_x * inputs,
                      width * inputs)
            for y in range(out_height):
                panel = (image * out_height + y) * out_width * outputs
                for tap in range(taps_y):
                    at, row = (y * stride_y + tap) * line, to + tap * rows * tiles * outputs
                    for t in range(tiles):
                        for column in range(0, outputs, COLUMNS):
                            place = row + t * rows * outputs + column
                            places = (at + t * rows, 1, out_width, panel + column, panel + column, 0, place, outputs,
                                      outputs, stride_x * inputs)
                            if rows == TALL:
                                _tall(padded, gy, _NO_BIAS, sums, True, np.float32(1), sums, places)
                            else:
                                _short(padded, gy, _NO_BIAS, sums, True, np.float32(1), sums, places)
