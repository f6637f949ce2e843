"""The gradient of a net's first weights: of a convolution with few inputs, whose filter's lines lie in one piece.

Where an image has three channels, a line of the filter reads 3 · taps neighbours of the image. Each of them times the
gradients of all outputs is a row of the weights' gradient: some rows by two vectors of outputs stay in registers while
the filter goes along a line of the image. No patches are laid.
"""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.registers import HAS_AVX512
from scaffe.jit.tiles import COLUMNS, tile
from scaffe.layers.kernels.cpu.bias import add_gradients
from scaffe.layers.kernels.cpu.onednn.workspace import workspace
from scaffe.layers.kernels.cpu.panels import is_fast
from scaffe.layers.kernels.cpu.parts import LINE, in_units, n_threads
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.plans import WeightedPlan
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
    """One geometry, for which ``suits`` holds; see ``WeightedPlan``.

    Args:
        others: computes everything else.
        spec: the geometry.
    """

    def __init__(self, others: WeightedPlan, spec: ConvSpec) -> None:
        self._others, self.forward, self.backward_data = others, others.forward, others.backward_data
        self.spec = spec
        n, inputs, *image = spec.in_shape
        rows, tiles = tiles_of(spec)
        each = -(-n // MOST_GROUPS)
        self._sizes = prod(spec.in_shape), prod(spec.weight_shape), prod(spec.out_shape)
        self._geometry = np.array([n, *image, inputs, *spec.out_spatial, spec.n_output, *spec.kernel, *spec.stride,
                                   *spec.pad, rows, tiles, each])
        self._n_groups, self._line = -(-n // each), rows * tiles
        padded = prod(length + 2 * pad for length, pad in zip(image, spec.pad, strict=True))
        self._padded = -(-(padded * inputs + self._line) // LINE) * LINE  # the last tile reads on
        self._sums = spec.kernel[0] * self._line * spec.n_output

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        """See WeightedPlan."""
        for n_elems, array in zip(self._sizes, (x, gw, gy), strict=True):
            expect_elems(n_elems, array)
        n_parts = self._n_parts()
        images, sums = (workspace(name, n_bytes).view(np.float32) for name, n_bytes in self._working_bytes().items())
        in_units(_add_up_parts, 1, n_parts, None, self._n_groups, x.reshape(-1), gy.reshape(-1), self._geometry,
                 images.reshape(n_parts, -1), sums)
        outputs, inputs, *kernel = self.spec.weight_shape
        total = sums.reshape(self._n_groups, kernel[0], self._line, outputs).sum(0)[:, :kernel[1] * inputs]
        found = total.reshape(*kernel, inputs, outputs).transpose(3, 2, 0, 1)
        target = gw.reshape(found.shape)
        target[...] = found if overwrite else target + found
        if gb is not None:
            add_gradients(gy.reshape(-1, outputs), gb, overwrite)

    def working_bytes(self) -> dict[str, int]:
        """Bytes by name of its working memory, which the plans of a thread share."""
        found: dict[str, int] = getattr(self._others, "working_bytes", dict)()
        mine = self._working_bytes()
        return {name: max(found.get(name, 0), mine.get(name, 0)) for name in {*found, *mine}}

    def _working_bytes(self) -> dict[str, int]:
        return {"bottom": 4 * self._n_parts() * self._padded, "weights": 4 * self._n_groups * self._sums}

    def _n_parts(self) -> int:
        return max(min(n_threads(), self._n_groups), 1)


def tiles_of(spec: ConvSpec) -> tuple[int, int]:
    """The rows of a tile, and how many tiles cover a line of the filter with the fewest rows in all."""
    line = spec.kernel[1] * spec.in_shape[1]
    rows = min((TALL, SHORT), key=lambda rows: -(-line // rows) * rows)
    return rows, -(-line // rows)


def if_faster(others: WeightedPlan, spec: ConvSpec) -> WeightedPlan:
    """This gradient where it is faster than that of ``others``, else ``others``."""
    if len(spec.kernel) != 2 or spec.dtype != np.float32 or not is_fast() or spec.in_shape[0] == 0:
        return others
    is_plain = spec.group == 1 and max(spec.dilation) == 1 and max(spec.kernel) > 1
    is_first = spec.in_shape[1] <= MOST_INPUTS and spec.n_output % COLUMNS == 0
    used = spec.kernel[1] * spec.in_shape[1] / prod(tiles_of(spec))
    return FirstWeights(others, spec) if is_plain and is_first and used >= LEAST_USED else others


@compiled
def _add_up_parts(start: int, stop: int, n_groups: int, x: np.ndarray, gy: np.ndarray, geometry: np.ndarray,
                  images: np.ndarray, sums: np.ndarray) -> None:
    """Parts of the groups of images, each of which lays an image within its padding in memory of its own."""
    n_parts = len(images)
    for part in range(start, stop):
        _add_up(x, gy, geometry, images[part], sums, n_groups * part // n_parts, n_groups * (part + 1) // n_parts)


@compiled(borrows=True)
def _add_up(x: np.ndarray, gy: np.ndarray, geometry: np.ndarray, padded: np.ndarray, sums: np.ndarray, first: int,
            stop: int) -> None:
    """Groups ``first`` to ``stop`` of images, each into sums of its own: line by line, the tops' gradients near."""
    n, height, width, inputs, out_height, out_width, outputs, taps_y = geometry[:8]
    stride_y, stride_x, pad_y, pad_x, rows, tiles, each = geometry[9:16]
    line = (width + 2 * pad_x) * inputs
    for i in range(padded.size):
        padded[i] = 0
    for group in range(first, stop):
        to = group * taps_y * rows * tiles * outputs
        for i in range(to, to + taps_y * rows * tiles * outputs):
            sums[i] = 0
        for image in range(group * each, min((group + 1) * each, n)):
            for y in range(height):
                _copy(x, (image * height + y) * width * inputs, padded, (pad_y + y) * line + pad_x * inputs,
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


@compiled(inline="always")
def _copy(x: np.ndarray, at: int, y: np.ndarray, to: int, n_elems: int) -> None:
    start, end = np.uint64(at), np.uint64(to)  # without a sign, or LLVM makes no vectors of it
    for i in range(np.uint64(n_elems)):
        y[end + i] = x[start + i]
