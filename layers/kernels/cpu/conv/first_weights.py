"""The gradient of a net's first weights: of a convolution with few inputs, whose filter's lines lie in one piece.

Where an image has three channels, a line of the filter reads 3 · taps neighbours of the image. Each of them times the
gradients of all outputs is a row of the weights' gradient: some rows by two vectors of outputs stay in registers while
the filter goes along a line of the image. No patches are laid.
"""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.loops import clear_run, copy_run
from scaffe.jit.simd import HAS_AVX512
from scaffe.jit.tiles import COLUMNS, tile
from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.conv.panels import is_fast
from scaffe.layers.kernels.cpu.threads.parts import LINE, in_units, n_threads, part_from
from scaffe.layers.kernels.specs import ConvSpec

SHORT, TALL = (8, 11) if HAS_AVX512 else (5, 6)
"""Rows at once: numbers of a line of the filter."""
MOST_INPUTS, LEAST_USED = 4, 0.7
"""Where a line has too few numbers for a whole tile, registers are left empty."""
MOST_GROUPS = 16  # of images, each with sums of its own: they never depend on threads
_short, _tall = (tile(rows, has_pitch=True, has_x_pitch=True) for rows in (SHORT, TALL))
_NO_BIAS = np.zeros(COLUMNS, np.float32)
GEOMETRY = ("n_images", "height", "width", "inputs", "out_height", "out_width", "outputs", "taps_y", "taps_x",
            "stride_y", "stride_x", "pad_y", "pad_x", "rows", "tiles", "images")


class FirstWeights:
    """The gradient of one geometry, for which ``suits`` holds; see ``Gradient``.

    Args:
        spec: the geometry.
    """

    def __init__(self, spec: ConvSpec) -> None:
        n, inputs, *image = spec.in_shape
        rows, tiles = tiles_of(spec)
        each = -(-n // MOST_GROUPS)
        self._weights = spec.weight_shape
        self._geometry = np.array([n, *image, inputs, *spec.out_spatial, spec.n_output, *spec.kernel, *spec.stride,
                                   *spec.pad, rows, tiles, each])
        self._n_groups, self._line = -(-n // each), rows * tiles
        padded = prod(length + 2 * pad for length, pad in zip(image, spec.pad, strict=True))
        self._padded = -(-(padded * inputs + self._line) // LINE) * LINE  # the last tile reads on
        self._sums = spec.kernel[0] * self._line * spec.n_output

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        """See Gradient."""
        images, sums = (workspace(name, n_bytes).view(np.float32) for name, n_bytes in self.working_bytes().items())
        in_units(_add_up, 1, self._n_groups, None, self._n_groups, x.reshape(-1), gy.reshape(-1), self._geometry,
                 images.reshape(self._n_parts(), -1), sums)
        outputs, inputs, *kernel = self._weights
        total = sums.reshape(self._n_groups, kernel[0], self._line, outputs).sum(0)[:, :kernel[1] * inputs]
        found = total.reshape(*kernel, inputs, outputs).transpose(3, 2, 0, 1)
        target = gw.reshape(found.shape)
        target[...] = found if overwrite else target + found

    def working_bytes(self) -> dict[str, int]:
        """See Gradient."""
        return {"bottom": 4 * self._n_parts() * self._padded, "weights": 4 * self._n_groups * self._sums}

    def _n_parts(self) -> int:
        return min(n_threads(), self._n_groups)


def tiles_of(spec: ConvSpec) -> tuple[int, int]:
    """The rows of a tile, and how many tiles cover a line of the filter with the fewest rows in all."""
    line = spec.kernel[1] * spec.in_shape[1]
    rows = min((TALL, SHORT), key=lambda rows: -(-line // rows) * rows)
    return rows, -(-line // rows)


def suits(spec: ConvSpec) -> bool:
    """Whether this gradient can be computed, and faster so than by oneDNN."""
    if len(spec.kernel) != 2 or spec.dtype != np.float32 or not is_fast() or spec.in_shape[0] == 0:
        return False
    is_plain = spec.group == 1 and max(spec.dilation) == 1 and max(spec.kernel) > 1
    is_first = spec.in_shape[1] <= MOST_INPUTS and spec.n_output % COLUMNS == 0
    return is_plain and is_first and spec.kernel[1] * spec.in_shape[1] / prod(tiles_of(spec)) >= LEAST_USED


@compiled(borrows=True)
def _add_up(first: int, stop: int, n_groups: int, x: np.ndarray, gy: np.ndarray, geometry: np.ndarray,
            images: np.ndarray, sums: np.ndarray) -> None:
    """Groups ``first`` to ``stop`` of images, each into sums of its own: line by line, the tops' gradients near. An
    image is laid within its padding into the part's own of ``images``."""
    padded = images[part_from(first, len(images), n_groups)]
    n, height, width, inputs, out_height, out_width, outputs, taps_y = geometry[:8]
    stride_y, stride_x, pad_y, pad_x, rows, tiles, each = geometry[9:16]
    line = (width + 2 * pad_x) * inputs
    clear_run(padded, 0, padded.size)
    for group in range(first, stop):
        to = group * taps_y * rows * tiles * outputs
        clear_run(sums, to, taps_y * rows * tiles * outputs)
        for image in range(group * each, min((group + 1) * each, n)):
            for y in range(height):
                copy_run(x, (image * height + y) * width * inputs, padded, (pad_y + y) * line + pad_x * inputs,
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
