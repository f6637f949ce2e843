"""Poolings of channels-last images by oneDNN."""

from __future__ import annotations

import numpy as np

from scaffe.layers.kernels.cpu.onednn.library import Library, dims
from scaffe.layers.kernels.cpu.onednn.primitive import (
    DIFF_DST,
    DIFF_SRC,
    DST,
    QUERY_WORKSPACE,
    SRC,
    WORKSPACE,
    Primitive,
    scratch,
    strided,
)
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls
from scaffe.layers.kernels.specs import PoolSpec, storage_strides, strides_within

TRAINING = 64
MAX, AVERAGE_OF_KERNEL, AVERAGE_OF_VALID = 0x1FF, 0x2FF, 0x3FF


def can_pool(spec: PoolSpec) -> bool:
    """Whether oneDNN gives Caffe's results: for MAX, and for AVE if Caffe divides every window by the kernel's area, or
    (without padding) by the number of elements inside the image. Padding wider than the image overflows its 32 bits."""
    if any(p > n for p, n in zip(spec.pad, spec.in_shape[2:], strict=True)):
        return False
    if spec.method == "MAX":
        return True
    return spec.method == "AVE" and (spec.windows_stay_inside or not any(spec.pad))


class Pooling:
    """MAX or AVE pooling of a geometry for which ``can_pool`` holds. Raises OnednnError if oneDNN has no kernel for
    it."""

    def __init__(self, lib: Library, spec: PoolSpec) -> None:
        average = AVERAGE_OF_KERNEL if any(spec.pad) else AVERAGE_OF_VALID
        method = MAX if spec.method == "MAX" else average
        x = strided(lib, spec.in_shape, storage_strides(spec.in_shape), spec.dtype)
        y = strided(lib, spec.out_shape, storage_strides(spec.out_shape), spec.dtype)
        geometry = [dims(v) for v in (strides_within(spec), spec.kernel, (0, 0), spec.pad, spec.pad_end)]
        forward = lib.make("pooling_forward_primitive_desc_create", lib.engine, TRAINING, method, x, y, *geometry, None)
        backward = lib.make("pooling_backward_primitive_desc_create", lib.engine, method, x, y, *geometry, forward,
                            None)
        kept = lib.query_md(forward, QUERY_WORKSPACE, 0) if method == MAX else None
        self._kept = [] if kept is None else [scratch(lib, kept)]
        workspace = [] if kept is None else [(WORKSPACE, kept)]
        self._forward = Primitive(lib, forward, [(SRC, x), (DST, y), *workspace])
        self._backward = Primitive(lib, backward, [(DIFF_DST, y), (DIFF_SRC, x), *workspace])

    def forward(self, x: np.ndarray, y: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Pool x into y. Maxima are kept for backward in oneDNN's own form, so ``mask`` is not supported."""
        self._forward.run(x, y, *self._kept)

    def prepare_calls(self, x: np.ndarray, y: np.ndarray) -> NativeCalls:
        return self._forward.prepare_calls(x, y, *self._kept)

    def backward(self, gy: np.ndarray, gx: np.ndarray) -> None:
        self._backward.run(gy, gx, *self._kept)
