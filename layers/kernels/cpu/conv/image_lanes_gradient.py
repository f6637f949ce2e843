"""The gradient of a convolution's weights: the tops' gradients times patches of the bottoms, a few images at a time."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.loops import clear_run, copy_run
from scaffe.jit.simd import HAS_AVX512, LANES, turn
from scaffe.jit.tiles import tile
from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.threads.parts import LINE, in_units, n_threads, part_from
from scaffe.layers.kernels.specs import ConvSpec

ROWS, VECTORS = 5, 4 if HAS_AVX512 else 2
"""Output channels and vectors of weights at once: as many sums as registers hold beside what they read."""
COLUMNS = VECTORS * LANES
PORTION_BYTES = 1 << 19  # of patches: they stay in a core's second cache
GEOMETRY = ("n_images", "height", "width", "inputs", "out_height", "out_width", "outputs", "taps", "pad_y", "pad_x",
            "portion", "columns", "pitch", "turned_pitch")
"""Images of a portion; columns of the sums; elements from a patch, and from an output's gradients, to the next. Both
are a line or two longer than they need be, or what lies below one another would share too few sets of the cache."""
_sums = tile(ROWS, VECTORS, has_pitch=True)
_NO_BIAS = np.zeros(COLUMNS, np.float32)


class WeightGradient:
    """One geometry. Each thread takes some of the columns, and lays of the patches what they read: sums never depend
    on threads.

    Args:
        spec: the geometry; the outputs are a multiple of ROWS.
    """

    def __init__(self, spec: ConvSpec) -> None:
        self._spec = spec
        n_pixels, weights = prod(spec.out_spatial), prod(spec.weight_shape[1:])
        n_columns = -(-weights // COLUMNS) * COLUMNS
        pitch = n_columns + 2 * LINE
        portion = max(min(PORTION_BYTES // (4 * n_pixels * pitch), spec.in_shape[0]), 1)
        turned_pitch = portion * n_pixels + LINE
        n, inputs, *image = spec.in_shape
        self._geometry = np.array([n, *image, inputs, *spec.out_spatial, spec.n_output, spec.kernel[0], *spec.pad,
                                   portion, n_columns, pitch, turned_pitch])
        self._patches, self._turned = portion * n_pixels * pitch, spec.n_output * turned_pitch
        self._n_columns, self._n_weights = n_columns, weights

    def working_bytes(self) -> dict[str, int]:
        """Bytes of working memory that ``run`` uses, by name."""
        n_parts = self._n_parts()
        return {"bottom": 4 * n_parts * self._patches, "top": 4 * n_parts * self._turned,
                "weights": 4 * self._spec.n_output * self._n_columns}

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        """Add the gradient to gw, in Caffe's order, or write it. Images lie channels-last."""
        bytes_of, n_parts = self.working_bytes(), self._n_parts()
        patches, turned, sums = (workspace(name, bytes_of[name]).view(np.float32)
                                 for name in ("bottom", "top", "weights"))
        in_units(_add_up, COLUMNS, self._n_columns, None, x.reshape(-1), gy.reshape(-1), self._geometry,
                 patches.reshape(n_parts, -1), turned.reshape(n_parts, -1), sums)
        out, inputs, *kernel = self._spec.weight_shape
        found = sums.reshape(out, -1)[:, :self._n_weights].reshape(out, *kernel, inputs).transpose(0, 3, 1, 2)
        target = gw.reshape(found.shape)
        target[...] = found if overwrite else target + found

    def _n_parts(self) -> int:
        return min(n_threads(), self._n_columns // COLUMNS)


@compiled(borrows=True)
def _add_up(first: int, stop: int, x: np.ndarray, gy: np.ndarray, geometry: np.ndarray, all_patches: np.ndarray,
            all_turned: np.ndarray, sums: np.ndarray) -> None:
    """Columns ``first`` to ``stop`` of the sums, over all images; each part has working memory of its own."""
    n, n_pixels, outputs = geometry[0], geometry[4] * geometry[5], geometry[6]
    portion, n_columns, pitch, turned_pitch = geometry[10:14]
    part = part_from(first // COLUMNS, len(all_patches), n_columns // COLUMNS)
    patches, turned = all_patches[part], all_turned[part]
    line = geometry[7] * geometry[3]  # columns of a line of the filter
    first_tap, stop_tap = first // line, min(-(-stop // line), geometry[7])
    for start in range(0, n, portion):
        n_images = min(portion, n - start)
        k = n_images * n_pixels
        for image in range(n_images):
            for pixel in range(n_pixels):
                _lay_patch(x, geometry, start + image, pixel, first_tap, stop_tap, patches,
                           (image * n_pixels + pixel) * pitch)
        turn(gy, start * n_pixels * outputs, outputs, (k, outputs), turned, 0, turned_pitch)
        for column in range(first, stop, COLUMNS):
            ahead = column + COLUMNS if column + COLUMNS < stop else column
            for row in range(0, outputs, ROWS):
                _sums(turned, patches, _NO_BIAS, sums, start > 0, np.float32(1), sums, (
                    row * turned_pitch, turned_pitch, k, column, ahead, 0, row * n_columns + column, n_columns, pitch))


@compiled(inline="always")
def _lay_patch(x: np.ndarray, geometry: np.ndarray, image: int, pixel: int, first: int, stop: int,
               patches: np.ndarray, to: int) -> None:
    """What lines ``first`` to ``stop`` of the filter see at a pixel; zeros where it looks beyond the image."""
    height, width, inputs, _, out_width, _, taps, pad_y, pad_x = geometry[1:10]
    top, left = pixel // out_width - pad_y, pixel % out_width - pad_x
    start, end = max(left, 0), min(left + taps, width)
    for tap in range(first, stop):
        row, line = to + tap * taps * inputs, top + tap
        if line < 0 or line >= height:
            clear_run(patches, row, taps * inputs)
            continue
        clear_run(patches, row, (start - left) * inputs)
        copy_run(x, ((image * height + line) * width + start) * inputs, patches, row + (start - left) * inputs,
              (end - start) * inputs)
        clear_run(patches, row + (end - left) * inputs, (left + taps - end) * inputs)
