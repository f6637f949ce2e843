"""Convolution by oneDNN: activations channels-last; weights in Caffe's order, reordered to the primitive's."""

from __future__ import annotations

from ctypes import c_void_p
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.channels import add_gradients
from scaffe.layers.kernels.cpu.onednn.inner_product import Gradient, InnerProduct, Passes
from scaffe.layers.kernels.cpu.onednn.library import Library, dims
from scaffe.layers.kernels.cpu.onednn.primitive import (
    BIAS,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    QUERY_DIFF_WEIGHTS,
    QUERY_WEIGHTS,
    SRC,
    WEIGHTS,
    Primitive,
    Reorder,
    any_layout,
    relu_attribute,
    scratch,
    strided,
)
from scaffe.layers.kernels.specs import ConvSpec, plain_strides, storage_strides, strides_within

TRAINING, DIRECT = 64, 1


class Convolution:
    """The three passes of one geometry by oneDNN, each built at its first use.

    Args:
        lib: the library.
        spec: the geometry, one to three spatial axes, of float32 or bfloat16. Weights, bias and their gradients are
            float32; for bfloat16, weights are rounded as they are reordered to the primitive's layout.

    Raises:
        OnednnError: oneDNN has no kernel for it (from the constructor, which builds forward).
    """

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        self._lib, self.spec = lib, spec
        split = (spec.group,) if spec.group > 1 else ()
        out, inp, *kernel = spec.weight_shape
        self._weight_shape = (*split, out // spec.group, inp, *kernel)
        self._x = strided(lib, spec.in_shape, storage_strides(spec.in_shape), spec.dtype)
        self._y = strided(lib, spec.out_shape, storage_strides(spec.out_shape), spec.dtype)
        self._w = strided(lib, self._weight_shape, plain_strides(self._weight_shape))
        self._any = any_layout(lib, self._weight_shape, spec.dtype)
        self._b = strided(lib, (spec.n_output,), (1,)) if spec.bias else None
        padding = dims(spec.pad)
        spread = tuple(d - 1 if k > 1 else 0 for d, k in zip(spec.dilation, spec.kernel, strict=True))
        self._geometry = (dims(strides_within(spec)), dims(spread), padding, padding)
        self._forwards: dict[float | None, _Weighted] = {None: self._build_forward(None)}

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        """y = x * w + b, then a ReLU if a slope is given. All arrays are contiguous."""
        if relu_slope not in self._forwards:
            self._forwards[relu_slope] = self._build_forward(relu_slope)
        self._forwards[relu_slope].run(w, x, *((b,) if self.spec.bias else ()), y)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        self._backward_data.run(w, gy, gx)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        self._backward_weights.run(x, gy, gw, gb, overwrite)

    def build_backward(self) -> None:
        """Build the primitives of backward. Raises OnednnError if oneDNN has none."""
        _ = self._backward_data, self._backward_weights

    # -- building ------------------------------------------------------------------------------------------
    def _forward_desc(self, attribute: c_void_p | None) -> c_void_p:
        return self._lib.make("convolution_forward_primitive_desc_create", self._lib.engine, TRAINING, DIRECT, self._x,
                              self._any, self._b, self._y, *self._geometry, attribute)

    @cached_property
    def _hint(self) -> c_void_p:
        return self._forward_desc(None)

    def _build_forward(self, slope: float | None) -> _Weighted:
        lib = self._lib
        desc = self._hint if slope is None else self._forward_desc(relu_attribute(lib, slope))
        bias = [(BIAS, self._b)] if self._b is not None else []
        return _Weighted(lib, desc, self._w, [(SRC, self._x), *bias, (DST, self._y)])

    @cached_property
    def _backward_data(self) -> _Weighted:
        desc = self._lib.make("convolution_backward_data_primitive_desc_create", self._lib.engine, DIRECT, self._x,
                              self._any, self._y, *self._geometry, self._hint, None)
        return _Weighted(self._lib, desc, self._w, [(DIFF_DST, self._y), (DIFF_SRC, self._x)])

    @cached_property
    def _backward_weights(self) -> _WeightGradient:
        gradient = any_layout(self._lib, self._weight_shape)
        desc = self._lib.make("convolution_backward_weights_primitive_desc_create", self._lib.engine, DIRECT, self._x,
                              gradient, self._b, self._y, *self._geometry, self._hint, None)
        return _WeightGradient(self._lib, desc, self._x, self._y, self._w, self._b)


class _Weighted:
    """A primitive that reads weights, which are first reordered to its layout where that differs."""

    def __init__(self, lib: Library, desc: c_void_p, plain: Any, others: list[tuple[int, Any]]) -> None:
        wanted = lib.query_md(desc, QUERY_WEIGHTS, 0)
        self._primitive = Primitive(lib, desc, [(WEIGHTS, wanted), *others])
        self._reorder = None if lib.memory_desc_equal(wanted, plain) else Reorder(lib, plain, wanted)
        self._n_bytes = lib.memory_desc_get_size(wanted)

    def run(self, w: np.ndarray, *arrays: np.ndarray) -> None:
        if self._reorder is not None:
            reordered = workspace("weights", self._n_bytes)
            self._reorder.run(w, reordered)
            w = reordered
        self._primitive.run(w, *arrays)


class _WeightGradient:
    """The gradients of weights and bias, computed in the primitive's layout, then written or added in Caffe's order."""

    def __init__(self, lib: Library, desc: c_void_p, x: Any, y: Any, plain: Any, bias: Any) -> None:
        wanted = lib.query_md(desc, QUERY_DIFF_WEIGHTS, 0)
        self._is_plain = bool(lib.memory_desc_equal(wanted, plain))
        extra = [(DIFF_BIAS, bias)] if bias is not None else []
        self._primitive = Primitive(lib, desc, [(SRC, x), (DIFF_DST, y), (DIFF_WEIGHTS, wanted), *extra])
        self._write, self._add = Reorder(lib, wanted, plain), Reorder(lib, wanted, plain, adds=True)
        self._n_bytes = lib.memory_desc_get_size(wanted)
        self._gb = scratch(lib, bias).view(np.float32) if bias is not None else None

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None, overwrite: bool) -> None:
        direct = overwrite and self._is_plain
        bias = () if self._gb is None else (gb if overwrite and gb is not None else self._gb,)
        found = gw if direct else workspace("weights", self._n_bytes)
        self._primitive.run(x, gy, found, *bias)
        if not direct:
            (self._write if overwrite else self._add).run(found, gw)
        if not overwrite and gb is not None:
            gb += self._gb


FEWEST_ROWS = 64
FEWEST_WEIGHTS = 1 << 20
"""Least rows and weights for which forward is a matrix product too; measured with AVX-512 (docs/compute.md)."""


def is_pointwise(spec: ConvSpec) -> bool:
    """Whether each output depends on one pixel, all pixels are read, and there are enough of them."""
    return spec.is_pointwise and max(spec.stride) == 1 and _rows(spec) >= FEWEST_ROWS


class Pointwise:
    """A float32 convolution for which ``is_pointwise`` holds, as matrix products; see ``WeightedPlan``.

    Args:
        lib, spec: as for oneDNN's own ``Convolution``.

    Raises:
        OnednnError: oneDNN has no kernel for it (from the constructor, which builds forward).
    """

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        self._lib, self.spec = lib, spec
        self._sizes = _rows(spec), spec.n_output, spec.in_shape[1]
        is_large = prod(spec.weight_shape) >= FEWEST_WEIGHTS
        self._forward = InnerProduct(lib, *self._sizes) if is_large else Convolution(lib, spec)

    @cached_property
    def _passes(self) -> Passes:
        return Passes(self._lib, *self._sizes, transpose=False)

    @cached_property
    def _gradient(self) -> Gradient:
        return Gradient(self._lib, *self._sizes, transpose=False)

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        self._forward.forward(x, w, b, y, relu_slope)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        self._passes.data.run(gy, w, gx)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        self._gradient.run(x, gy, gw, overwrite)
        if gb is not None:
            add_gradients(gy.reshape(-1, gb.size), gb, overwrite)


def _rows(spec: ConvSpec) -> int:
    return spec.in_shape[0] * prod(spec.in_shape[2:])
