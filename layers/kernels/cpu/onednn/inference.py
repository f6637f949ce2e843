"""Convolutions for inference by oneDNN: weights stay in the primitive's layout; a sum and a ReLU run in its pass."""

from __future__ import annotations

from ctypes import c_void_p
from functools import cached_property

import numpy as np

from scaffe.layers.kernels.cpu.onednn.library import Library, dims
from scaffe.layers.kernels.cpu.onednn.primitive import (
    BIAS,
    DST,
    QUERY_WEIGHTS,
    SRC,
    WEIGHTS,
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

INFERENCE, DIRECT = 96, 1
ADDED = 0x8000 | 2  # DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1


class Convolution:
    """A plan of one geometry; see ``InferencePlan``.

    Args:
        lib: the library.
        spec: the geometry, one to three spatial axes, of float32 or bfloat16, with a bias.
        relu_slope: slope below 0 of a ReLU at the end; None: no ReLU.
        adds: whether ``forward`` is given a blob to add.

    Raises:
        OnednnError: oneDNN has no kernel for it.
    """

    def __init__(self, lib: Library, spec: ConvSpec, relu_slope: float | None, adds: bool) -> None:
        split = (spec.group,) if spec.group > 1 else ()
        out, inp, *kernel = spec.weight_shape
        shape = (*split, out // spec.group, inp, *kernel)
        x = strided(lib, spec.in_shape, storage_strides(spec.in_shape), spec.dtype)
        y = strided(lib, spec.out_shape, storage_strides(spec.out_shape), spec.dtype)
        plain, b = strided(lib, shape, plain_strides(shape)), strided(lib, (spec.n_output,), (1,))
        attribute = following(lib, y if adds else None, relu_slope)
        desc = self._describe(lib, spec, (x, any_layout(lib, shape, spec.dtype), b, y), attribute)
        w = lib.query_md(desc, QUERY_WEIGHTS, 0)
        added = [(ADDED, y)] if adds else []
        self._memories = [(SRC, x), (WEIGHTS, w), (BIAS, b), (DST, y)]
        self._primitive = Primitive(lib, desc, [*self._memories, *added])
        self._lib, self._spec, self._slope = lib, spec, relu_slope
        self._reorder = Reorder(lib, plain, w)
        self._w, self._b = scratch(lib, w), np.zeros(spec.n_output, np.float32)

    @cached_property
    def _in_place(self) -> Primitive:
        """The primitive that adds its result to y."""
        x, w, b, y = (memory for _, memory in self._memories)
        attribute = following(self._lib, y, self._slope, in_place=True)
        return Primitive(self._lib, self._describe(self._lib, self._spec, (x, w, b, y), attribute), self._memories)

    @staticmethod
    def _describe(lib: Library, spec: ConvSpec, memories: tuple[c_void_p, ...], attribute: c_void_p | None) -> c_void_p:
        spread = tuple(d - 1 if k > 1 else 0 for d, k in zip(spec.dilation, spec.kernel, strict=True))
        return lib.make("convolution_forward_primitive_desc_create", lib.engine, INFERENCE, DIRECT, *memories,
                        dims(strides_within(spec)), dims(spread), dims(spec.pad), dims(spec.pad), attribute)

    def set_weights(self, w: np.ndarray, b: np.ndarray) -> None:
        self._reorder.run(np.ascontiguousarray(w, np.float32), self._w)
        self._b[...] = b

    def share_weights(self, other: Convolution) -> None:
        self._w, self._b = other._w, other._b

    def forward(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> None:
        if added is not None and place_of(added) == place_of(y):
            self._in_place.run(x, self._w, self._b, y)
        else:
            self._primitive.run(x, self._w, self._b, y, *(() if added is None else (added,)))

    def prepare_calls(self, x: np.ndarray, y: np.ndarray, added: np.ndarray | None = None) -> NativeCalls:
        if added is not None and place_of(added) == place_of(y):
            return self._in_place.prepare_calls(x, self._w, self._b, y)
        return self._primitive.prepare_calls(x, self._w, self._b, y, *(() if added is None else (added,)))
