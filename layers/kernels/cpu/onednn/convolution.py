"""Convolution by oneDNN: activations channels-last; weights in Caffe's order, reordered to the primitive's."""

from __future__ import annotations

from ctypes import c_void_p
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.arrays import workspace
from scaffe.layers.kernels.cpu.conv.weight_gradients import WithGradient
from scaffe.layers.kernels.cpu.onednn.inner_product import Gradient, InnerProduct, Passes
from scaffe.layers.kernels.cpu.onednn.library import Library, dims
from scaffe.layers.kernels.cpu.onednn.primitive import (
    QUERY_DIFF_WEIGHTS,
    QUERY_WEIGHTS,
    Arg,
    Primitive,
    Reorder,
    any_layout,
    following,
    place_of,
    scratch,
    strided,
)
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls
from scaffe.layers.kernels.specs import ConvSpec, plain_strides, storage_strides, strides_within

TRAINING, INFERENCE, DIRECT = 64, 96, 1
ADDED = 0x8000 | 2  # DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1


class _Memories:
    """The memory descriptors of a geometry of one to three spatial axes, float32 or bfloat16, and the numbers that all
    its primitives take. Weights, bias and their gradients are float32; for bfloat16, weights are rounded as they are
    reordered to the primitive's layout, ``any``."""

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        split = (spec.group,) if spec.group > 1 else ()
        out, inp, *kernel = spec.weight_shape
        self.weights = (*split, out // spec.group, inp, *kernel)
        self.x, self.y = (strided(lib, shape, storage_strides(shape), spec.dtype)
                          for shape in (spec.in_shape, spec.out_shape))
        self.w, self.any = (strided(lib, self.weights, plain_strides(self.weights)),
                            any_layout(lib, self.weights, spec.dtype))
        self.b = strided(lib, (spec.n_output,), (1,)) if spec.bias else None
        spread = tuple(d - 1 if k > 1 else 0 for d, k in zip(spec.dilation, spec.kernel, strict=True))
        self.window = dims(strides_within(spec)), dims(spread), dims(spec.pad), dims(spec.pad)
        self._lib = lib

    def forward(self, kind: int, attribute: c_void_p | None, w: c_void_p | None = None) -> c_void_p:
        """The descriptor of forward for TRAINING or INFERENCE, with the weights in the layout ``w``, by default any."""
        return self._lib.make("convolution_forward_primitive_desc_create", self._lib.engine, kind, DIRECT, self.x,
                              w or self.any, self.b, self.y, *self.window, attribute)


class Convolution:
    """The three passes of one geometry by oneDNN, each built at its first use, and forward at once. Raises OnednnError
    if oneDNN has no kernel for it."""

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        self._lib, self.spec, self._of = lib, spec, _Memories(lib, spec)
        self._forwards: dict[float | None, _Weighted] = {None: self._build_forward(None)}

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
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

    @cached_property
    def _hint(self) -> c_void_p:
        return self._of.forward(TRAINING, None)

    def _build_forward(self, slope: float | None) -> _Weighted:
        of = self._of
        desc = self._hint if slope is None else of.forward(TRAINING, following(self._lib, None, slope))
        bias = [(Arg.BIAS, of.b)] if of.b is not None else []
        return _Weighted(self._lib, desc, of.w, [(Arg.SRC, of.x), *bias, (Arg.DST, of.y)])

    @cached_property
    def _backward_data(self) -> _Weighted:
        of = self._of
        desc = self._lib.make("convolution_backward_data_primitive_desc_create", self._lib.engine, DIRECT, of.x, of.any,
                              of.y, *of.window, self._hint, None)
        return _Weighted(self._lib, desc, of.w, [(Arg.DIFF_DST, of.y), (Arg.DIFF_SRC, of.x)])

    @cached_property
    def _backward_weights(self) -> _WeightGradient:
        of, gradient = self._of, any_layout(self._lib, self._of.weights)
        desc = self._lib.make("convolution_backward_weights_primitive_desc_create", self._lib.engine, DIRECT, of.x,
                              gradient, of.b, of.y, *of.window, self._hint, None)
        return _WeightGradient(self._lib, desc, of)


class _Weighted:
    """A primitive that reads weights, which are first reordered to its layout where that differs."""

    def __init__(self, lib: Library, desc: c_void_p, plain: Any, others: list[tuple[int, Any]]) -> None:
        wanted = lib.query_md(desc, QUERY_WEIGHTS, 0)
        self._primitive = Primitive(lib, desc, [(Arg.WEIGHTS, wanted), *others])
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

    def __init__(self, lib: Library, desc: c_void_p, of: _Memories) -> None:
        wanted = lib.query_md(desc, QUERY_DIFF_WEIGHTS, 0)
        self._is_plain = bool(lib.memory_desc_equal(wanted, of.w))
        extra = [(Arg.DIFF_BIAS, of.b)] if of.b is not None else []
        memories = [(Arg.SRC, of.x), (Arg.DIFF_DST, of.y), (Arg.DIFF_WEIGHTS, wanted), *extra]
        self._primitive = Primitive(lib, desc, memories)
        self._write, self._add = Reorder(lib, wanted, of.w), Reorder(lib, wanted, of.w, adds=True)
        self._n_bytes = lib.memory_desc_get_size(wanted)
        self._gb = scratch(lib, of.b).view(np.float32) if of.b is not None else None

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None, overwrite: bool) -> None:
        direct = overwrite and self._is_plain
        bias = () if self._gb is None else (gb if overwrite and gb is not None else self._gb,)
        found = gw if direct else workspace("weights", self._n_bytes)
        self._primitive.run(x, gy, found, *bias)
        if not direct:
            (self._write if overwrite else self._add).run(found, gw)
        if not overwrite and gb is not None:
            gb += self._gb


class InferenceConvolution:
    """An InferencePlan of a geometry with a bias: weights stay in the primitive's layout; a ReLU of that slope below 0
    (None: no ReLU) and the sum with a blob, if it ``adds`` one, run in its pass. Raises OnednnError if oneDNN has no
    kernel."""

    def __init__(self, lib: Library, spec: ConvSpec, relu_slope: float | None, adds: bool) -> None:
        self._lib, self._slope, self._of = lib, relu_slope, _Memories(lib, spec)
        of, desc = self._of, self._of.forward(INFERENCE, following(lib, self._of.y if adds else None, relu_slope))
        w = lib.query_md(desc, QUERY_WEIGHTS, 0)
        self._memories = [(Arg.SRC, of.x), (Arg.WEIGHTS, w), (Arg.BIAS, of.b), (Arg.DST, of.y)]
        self._primitive = Primitive(lib, desc, [*self._memories, *([(ADDED, of.y)] if adds else [])])
        self._reorder = Reorder(lib, of.w, w)
        self._w, self._b = scratch(lib, w), np.zeros(spec.n_output, np.float32)

    @cached_property
    def _in_place(self) -> Primitive:
        """The primitive that adds its result to y."""
        attribute = following(self._lib, self._of.y, self._slope, in_place=True)
        return Primitive(self._lib, self._of.forward(INFERENCE, attribute, self._memories[1][1]), self._memories)

    def set_weights(self, w: np.ndarray, b: np.ndarray) -> None:
        self._reorder.run(np.ascontiguousarray(w, np.float32), self._w)
        self._b[...] = b

    def share_weights(self, other: InferenceConvolution) -> None:
        self._w, self._b = other._w, other._b

    def forward(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> None:
        primitive, arrays = self._chosen(y, added)
        primitive.run(x, self._w, self._b, y, *arrays)

    def prepare_calls(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> NativeCalls:
        primitive, arrays = self._chosen(y, added)
        return primitive.prepare_calls(x, self._w, self._b, y, *arrays)

    def _chosen(self, y: np.ndarray, added: np.ndarray | None) -> tuple[Primitive, tuple[np.ndarray, ...]]:
        """The primitive to run, and what it takes besides bottom, weights, bias and top."""
        if added is not None and place_of(added) == place_of(y):
            return self._in_place, ()
        return self._primitive, () if added is None else (added,)


FEWEST_ROWS = 64
FEWEST_WEIGHTS = 1 << 20
"""Least rows and weights for which forward is a matrix product too; as measured (docs/design/cpu_kernels.md)."""


def is_pointwise(spec: ConvSpec) -> bool:
    """Whether each output depends on one pixel, all pixels are read, and there are enough of them."""
    return spec.is_pointwise and max(spec.stride) == 1 and prod(spec.in_shape) // spec.in_shape[1] >= FEWEST_ROWS


class Pointwise(WithGradient):
    """A float32 convolution for which ``is_pointwise`` holds, as matrix products; built as ``Convolution``."""

    def __init__(self, lib: Library, spec: ConvSpec) -> None:
        self._lib, self.spec = lib, spec
        self._sizes = prod(spec.in_shape) // spec.in_shape[1], spec.n_output, spec.in_shape[1]
        is_large = prod(spec.weight_shape) >= FEWEST_WEIGHTS
        self.forward = (InnerProduct(lib, *self._sizes) if is_large else Convolution(lib, spec)).forward

    @cached_property
    def _passes(self) -> Passes:
        return Passes(self._lib, *self._sizes, transpose=False)

    @cached_property
    def gradient(self) -> Gradient:
        return Gradient(self._lib, *self._sizes, transpose=False)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        self._passes.data.run(gy, w, gx)
