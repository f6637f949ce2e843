"""Convolutions by im2col, and inner products, by cuBLAS; weights in Caffe's order to the kernels' and back."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda import deferred
from scaffe.layers.kernels.cuda.arena import Part, arena
from scaffe.layers.kernels.cuda.channels import add_bias, add_gradients
from scaffe.layers.kernels.cuda.cublas import Matrix, columns, matrix, multiply
from scaffe.layers.kernels.cuda.deferred import Work
from scaffe.layers.kernels.cuda.elementwise import convert
from scaffe.layers.kernels.cuda.launch import THREADS, blocks_for, kernel, run_flat, wide
from scaffe.layers.kernels.extents import expect_elems, row_blocks
from scaffe.layers.kernels.specs import ConvPasses, ConvSpec


class Weights:
    """The conversions for weights of Caffe's shape (O, I, K...) to ``dtype``, which kernels read."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._dtype, self._counts = np.dtype(dtype), (np.int32(shape[1]), np.int32(prod(shape[2:])))
        self._n_elems = prod(shape)
        self._turns = 1 not in self._counts
        self.part: Part = ((shape[0], *shape[2:], shape[1]), self._dtype)

    def laid_out(self, w: Any, scratch: Any) -> Any:
        """The weights in the kernels' order and type: w itself if it is, else ``scratch``, which they are written to.

        Weights in a half type have the kernels' order, since parameters are float32.
        """
        if w.dtype == self._dtype and (not self._turns or w.dtype != wide(w.dtype)):
            return w
        self.lay_out(w, scratch)
        return scratch

    def lay_out(self, w: Any, out: Any) -> None:
        """Write the weights w to ``out`` in the kernels' order and type."""
        expect_elems(self._n_elems, w, out)
        if not self._turns:
            convert(w.reshape(-1), out.reshape(-1))
            return
        run_flat("conversion", "weights_channels_last", self._dtype, w.size, (w, out, *self._counts),
                 other=np.dtype(w.dtype), per_thread=1)

    def bring_back(self, gradient: Any, gw: Any, overwrite: bool, waits: bool = False) -> None:
        """Add a gradient in the kernels' order, of any type, to gw in Caffe's order, or write it if ``overwrite``.
        ``waits``: it lies in memory of ``deferred``, so that this may be done later."""
        expect_elems(self._n_elems, gradient, gw)
        work = Work((gradient, gw), (gw.size, *self._counts, not overwrite), gw, gw.size)
        deferred.add(deferred.GRADIENTS, work, gw.dtype, np.dtype(gradient.dtype), waits)


MOST_COLUMN_BYTES = 256 << 20  # of unfolded images at once
MOST_AXES = 8  # as im2col.cu has it


class Convolution:
    """The three passes of one geometry, some images at a time, on channels-last arrays and weights in Caffe's order.

    Args:
        spec: the geometry, at most eight spatial axes.

    Raises:
        LayerError: more axes.
    """

    def __init__(self, spec: ConvSpec) -> None:
        n_axes = len(spec.kernel)
        if n_axes > MOST_AXES:
            raise LayerError(f"GPU convolutions have at most {MOST_AXES} spatial axes, got {n_axes}")
        self.spec, self._dtype = spec, np.dtype(spec.dtype)
        self._weights = Weights(spec.weight_shape, self._dtype)
        self._n_out, self._taps = prod(spec.out_spatial), prod(spec.kernel)
        self._n_in = prod(spec.in_shape[1:])
        row_bytes = self._n_out * self._taps * spec.in_shape[1] * self._dtype.itemsize
        self._block = max(1, min(spec.in_shape[0], MOST_COLUMN_BYTES // max(row_bytes, 1)))
        self._columns = (self._block * self._n_out * self._taps * spec.in_shape[1], self._dtype)
        axes = (spec.in_shape[2:], spec.out_spatial, spec.kernel, spec.stride, spec.pad, spec.dilation)
        self._geometry = (device.load().asarray(np.array(axes, np.int32)), np.int32(n_axes))
        self._gradient = (spec.weight_shape, wide(self._dtype))

    def scratch(self, passes: ConvPasses) -> list[tuple[Part, ...]]:
        """What each of these passes takes of the arena at once."""
        others = ((self._weights.part, passes.forward or passes.by_data), (self._gradient, passes.by_weights))
        return [(self._columns, other) for other, runs in others if runs]

    def forward(self, x: Any, w: Any, b: Any, y: Any, relu_slope: float | None = None) -> None:
        self._check(x, y)
        columns, kernels = arena.take(self._columns, self._weights.part)
        kernels = self._weights.laid_out(w, kernels)
        for start, n_images in self._blocks():
            self._unfold(x, columns, start, n_images)
            n_rows, (outs, ins) = n_images * self._n_out, self._group_sizes()
            multiply(n_rows, outs, ins, self._column_matrix(columns, n_rows), self._kernel_matrix(kernels, True),
                     self._output_matrix(y, start), (self._dtype, self._dtype), n_batch=self.spec.group)
        add_bias(y.reshape(-1, self.spec.n_output), b, relu_slope)

    def backward_data(self, gy: Any, w: Any, gx: Any) -> None:
        self._check(gx, gy)
        columns, kernels = arena.take(self._columns, self._weights.part)
        kernels = self._weights.laid_out(w, kernels)
        for start, n_images in self._blocks():
            n_rows, (outs, ins) = n_images * self._n_out, self._group_sizes()
            multiply(n_rows, ins, outs, self._output_matrix(gy, start), self._kernel_matrix(kernels, False),
                     self._column_matrix(columns, n_rows), (self._dtype, self._dtype), n_batch=self.spec.group)
            part = gx.reshape(-1)[start * self._n_in:(start + n_images) * self._n_in]
            self._launch("col2im", part.size, (columns, part), n_images)

    def backward_weights(self, x: Any, gy: Any, gw: Any, gb: Any, overwrite: bool = False) -> None:
        self._check(x, gy)
        columns, gradient = arena.take(self._columns, self._gradient)
        for i, (start, n_images) in enumerate(self._blocks()):
            self._unfold(x, columns, start, n_images)
            n_rows, (outs, ins) = n_images * self._n_out, self._group_sizes()
            multiply(outs, ins, n_rows, self._output_matrix(gy, start)._replace(transposed=True),
                     self._column_matrix(columns, n_rows), self._kernel_matrix(gradient, False),
                     (self._dtype, gradient.dtype), add=i > 0, n_batch=self.spec.group)
        self._weights.bring_back(gradient, gw, overwrite)
        if gb is not None:
            add_gradients(gy.reshape(-1, self.spec.n_output), gb, overwrite)

    # -- parts ---------------------------------------------------------------------------------------------
    def _check(self, bottom: Any, top: Any) -> None:
        expect_elems(prod(self.spec.in_shape), bottom)
        expect_elems(prod(self.spec.out_shape), top)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """First image and number of images at a time."""
        n = self.spec.in_shape[0]
        for start in range(0, n, self._block):
            yield start, min(self._block, n - start)

    def _group_sizes(self) -> tuple[int, int]:
        """Outputs of a group, and elements of its window."""
        return self.spec.n_output // self.spec.group, self._taps * self.spec.in_shape[1] // self.spec.group

    def _unfold(self, x: Any, columns: Any, start: int, n_images: int) -> None:
        images = x.reshape(-1)[start * self._n_in:(start + n_images) * self._n_in]
        n_elems = n_images * self._n_out * self._taps * self.spec.in_shape[1]
        self._launch("im2col", n_elems, (images, columns), n_images)

    def _launch(self, name: str, n_elems: int, arrays: tuple[Any, ...], n_images: int) -> None:
        """The kernels count elements themselves."""
        counts = (np.int32(n_images), np.int32(self.spec.in_shape[1]), np.int32(self.spec.group))
        kernel("im2col", name, self._dtype)(blocks_for(n_elems), (THREADS,), (*arrays, *self._geometry, *counts))

    def _column_matrix(self, columns: Any, n_rows: int) -> Matrix:
        _, ins = self._group_sizes()
        return Matrix(columns.data.ptr, ins, step=n_rows * ins)

    def _kernel_matrix(self, kernels: Any, transposed: bool) -> Matrix:
        outs, ins = self._group_sizes()
        return Matrix(kernels.data.ptr, ins, transposed, outs * ins)

    def _output_matrix(self, y: Any, start: int) -> Matrix:
        outs, _ = self._group_sizes()
        at = y.data.ptr + start * self._n_out * self.spec.n_output * self._dtype.itemsize
        return Matrix(at, self.spec.n_output, step=outs)


class InnerProduct:
    """y = x wᵀ + b for m rows of k inputs and n outputs of ``dtype``, a RowwisePlan; with ``transpose`` w is (k, n).

    w, b and their gradients are float32 beside half types (w may be in the half type too). The gradient of long weights
    always comes by blocks of rows, since products of other sizes may add in another order.
    """

    def __init__(self, m: int, n: int, k: int, transpose: bool = False, dtype: Any = np.float32) -> None:
        self._m, self._n, self._k, self._transpose, self._dtype = m, n, k, transpose, np.dtype(dtype)
        self._w = ((k, n) if transpose else (n, k), self._dtype)
        self.rows = [] if transpose else row_blocks(n, k * wide(dtype).itemsize)

    def forward(self, x: Any, w: Any, b: Any, y: Any, relu_slope: float | None = None) -> None:
        m, n, k = self._m, self._n, self._k
        x, y = x.reshape(m, k), y.reshape(m, n)
        multiply(m, n, k, matrix(x), matrix(self._narrowed(w), not self._transpose), matrix(y), (x.dtype, y.dtype))
        add_bias(y, b, relu_slope)

    def backward_data(self, gy: Any, w: Any, gx: Any) -> None:
        m, n, k = self._m, self._n, self._k
        gy, gx = gy.reshape(m, n), gx.reshape(m, k)
        multiply(m, k, n, matrix(gy), matrix(self._narrowed(w), self._transpose), matrix(gx), (gy.dtype, gx.dtype))

    def backward_weights(self, x: Any, gy: Any, gw: Any, gb: Any, overwrite: bool = False) -> None:
        gw = gw.reshape(self._w[0])
        for rows in self.rows:
            self.backward_rows(x, gy, rows, gw[rows], overwrite)
        if not self.rows:
            self.backward_rows(x, gy, slice(0, self._w[0][0]), gw, overwrite)
        if gb is not None:
            self.backward_bias(gy, gb, overwrite)

    def backward_rows(self, x: Any, gy: Any, rows: slice, gw: Any, overwrite: bool = True) -> None:
        """See RowwisePlan; with ``transpose`` all of them alone."""
        x, gy, gw = x.reshape(self._m, self._k), gy.reshape(self._m, self._n), gw.reshape(-1, self._w[0][1])
        left, right = (matrix(x), matrix(gy)) if self._transpose else (columns(gy, rows), matrix(x))
        multiply(gw.shape[0], gw.shape[1], self._m, left._replace(transposed=True), right, matrix(gw),
                 (x.dtype, gw.dtype), add=not overwrite)

    def backward_bias(self, gy: Any, gb: Any, overwrite: bool = True) -> None:
        add_gradients(gy.reshape(self._m, self._n), gb, overwrite)

    def _narrowed(self, w: Any) -> Any:
        """The weights in the type of x."""
        w = w.reshape(self._w[0])
        if w.dtype == self._dtype:
            return w
        (narrow,) = arena.take(self._w)
        convert(w.reshape(-1), narrow.reshape(-1))
        return narrow
