"""The weights' gradient of a convolution: the tops' gradients times patches of the bottoms, a few images at a time."""

from __future__ import annotations

from math import prod

import numpy as np

from scaffe.jit import compiled
from scaffe.jit.loops import clear_elements, copy_elements
from scaffe.jit.register_tiles import register_tile
from scaffe.jit.simd import HAS_AVX512, LANES, transpose
from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.threads.parts import LINE, in_units, n_threads, part_from
from scaffe.layers.kernels.specs import ConvSpec

ROWS, VECTORS = 5, 4 if HAS_AVX512 else 2
"""Output channels and vectors of weights of a register tile: as many sums as fit beside the operands."""
COLUMNS = VECTORS * LANES
PORTION_BYTES = 1 << 19  # patches that stay in a core's second-level cache
GEOMETRY = ("n_images", "height", "width", "inputs", "out_height", "out_width", "outputs", "taps", "pad_y", "pad_x",
            "portion", "columns", "pitch", "transposed_pitch")
"""The last four: images of a portion; columns of the sums; elements from a patch to the next, and from an output's
gradients to the next. Both pitches are a cache line or two longer than needed, to use more sets of the cache."""
_sums = register_tile(ROWS, VECTORS, has_pitch=True)
_NO_BIAS = np.zeros(COLUMNS, np.float32)


class WeightGradient:
    """The ``Gradient`` of a geometry whose outputs are a multiple of ROWS. Each thread sums some of the columns, and
    writes the parts of patches that these read, so that results do not depend on the number of threads."""

    def __init__(self, spec: ConvSpec) -> None:
        self._spec = spec
        n_pixels, weights = prod(spec.out_spatial), prod(spec.weight_shape[1:])
        n_columns = -(-weights // COLUMNS) * COLUMNS
        pitch = n_columns + 2 * LINE
        portion = max(min(PORTION_BYTES // (4 * n_pixels * pitch), spec.in_shape[0]), 1)
        transposed_pitch = portion * n_pixels + LINE
        n, inputs, *image = spec.in_shape
        self._geometry = np.array([n, *image, inputs, *spec.out_spatial, spec.n_output, spec.kernel[0], *spec.pad,
                                   portion, n_columns, pitch, transposed_pitch])
        self._patches, self._transposed = portion * n_pixels * pitch, spec.n_output * transposed_pitch
        self._n_columns, self._n_weights = n_columns, weights

    def working_bytes(self) -> dict[str, int]:
        n_parts = self._n_parts()
        return {"bottom": 4 * n_parts * self._patches, "top": 4 * n_parts * self._transposed,
                "weights": 4 * self._spec.n_output * self._n_columns}

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        """Add the gradient to gw, in Caffe's order, or overwrite it. Images are channels-last."""
        bytes_of, n_parts = self.working_bytes(), self._n_parts()
        patches, transposed, sums = (workspace(name, bytes_of[name]).view(np.float32)
                                 for name in ("bottom", "top", "weights"))
        in_units(_add_up, COLUMNS, self._n_columns, None, x.reshape(-1), gy.reshape(-1), self._geometry,
                 patches.reshape(n_parts, -1), transposed.reshape(n_parts, -1), sums)
        out, inputs, *kernel = self._spec.weight_shape
        found = sums.reshape(out, -1)[:, :self._n_weights].reshape(out, *kernel, inputs).transpose(0, 3, 1, 2)
        target = gw.reshape(found.shape)
        target[...] = found if overwrite else target + found

    def _n_parts(self) -> int:
        return min(n_threads(), self._n_columns // COLUMNS)


@compiled(borrows=True)
def _add_up(first: int, stop: int, x: np.ndarray, gy: np.ndarray, geometry: np.ndarray, all_patches: np.ndarray,
            all_transposed: np.ndarray, sums: np.ndarray) -> None:
    """Sum up columns [first, stop) over all images; each part of the columns has working memory of its own."""
    n, n_pixels, outputs = geometry[0], geometry[4] * geometry[5], geometry[6]
    portion, n_columns, pitch, transposed_pitch = geometry[10:14]
    part = part_from(first // COLUMNS, len(all_patches), n_columns // COLUMNS)
    patches, transposed = all_patches[part], all_transposed[part]
    line = geometry[7] * geometry[3]  # columns of a line of the filter
    first_tap, stop_tap = first // line, min(-(-stop // line), geometry[7])
    for start in range(0, n, portion):
        n_images = min(portion, n - start)
        k = n_images * n_pixels
        for image in range(n_images):
            for pixel in range(n_pixels):
                _lay_patch(x, geometry, start + image, pixel, first_tap, stop_tap, patches,
                           (image * n_pixels + pixel) * pitch)
        transpose(gy, start * n_pixels * outputs, outputs, (k, outputs), transposed, 0, transposed_pitch)
        for column in range(first, stop, COLUMNS):
            ahead = column + COLUMNS if column + COLUMNS < stop else column
            for row in range(0, outputs, ROWS):
                _sums(transposed, patches, _NO_BIAS, sums, start > 0, np.float32(1), sums, (
                    row * transposed_pitch, transposed_pitch, k, column, ahead, 0, row * n_columns + column, n_columns,
                    pitch))


@compiled(inline="always")
def _lay_patch(x: np.ndarray, geometry: np.ndarray, image: int, pixel: int, first: int, stop: int,
               patches: np.ndarray, to: int) -> None:
    """Write what rows [first, stop) of the filter read at a pixel; zeros outside of the image."""
    height, width, inputs, _, out_width, _, taps, pad_y, pad_x = geometry[1:10]
    top, left = pixel // out_width - pad_y, pixel % out_width - pad_x
    start, end = max(left, 0), min(left + taps, width)
    for tap in range(first, stop):
        row, line = to + tap * taps * inputs, top + tap
        if line < 0 or line >= height:
            clear_elements(patches, row, taps * inputs)
            continue
        clear_elements(patches, row, (start - left) * inputs)
        copy_elements(x, ((image * height + line) * width + start) * inputs, patches, row + (start - left) * inputs,
                      (end - start) * inputs)
        clear_elements(patches, row + (end - left) * inputs, (left + taps - end) * inputs)
