"""oneDNN's memory descriptors and attributes, primitives that run on NumPy arrays, and poolings of channels-last
images."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_void_p
from enum import IntEnum
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.kernels.cpu.arrays import workspace, zeros
from scaffe.layers.kernels.cpu.onednn.library import ANY_TAG, BFLOAT16, FLOAT32, Library, dims, refusal
from scaffe.layers.kernels.cpu.threads.prepared_calls import NativeCalls
from scaffe.layers.kernels.extents import mismatch
from scaffe.layers.kernels.specs import PoolSpec, storage_strides, strides_within


class Arg(IntEnum):
    """The numbers of a primitive's arguments."""

    SRC, DST, WEIGHTS, BIAS, WORKSPACE, SCRATCHPAD = 1, 17, 33, 41, 64, 80
    DIFF_SRC, DIFF_DST, DIFF_WEIGHTS, DIFF_BIAS = 129, 145, 161, 169


QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS, QUERY_WORKSPACE, QUERY_SCRATCHPAD = 131, 132, 135, 136
RELU, ADD = 0x20, 0x1FFF0
SINGLE = np.dtype(np.float32)


class _Argument(ctypes.Structure):
    _fields_ = (("arg", c_int), ("memory", c_void_p))


def data_type(dtype: np.dtype) -> int:
    """oneDNN's number of an element type, float32 or bfloat16."""
    return BFLOAT16 if dtype.kind == "V" else FLOAT32


def strided(lib: Library, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype = SINGLE) -> c_void_p:
    """The descriptor of memory with element strides."""
    return lib.make("memory_desc_create_with_strides", len(shape), dims(tuple(shape)), data_type(dtype),
                    dims(tuple(strides)))


def any_layout(lib: Library, shape: Sequence[int], dtype: np.dtype = SINGLE) -> c_void_p:
    """The descriptor that leaves the layout to the primitive."""
    return lib.make("memory_desc_create_with_tag", len(shape), dims(tuple(shape)), data_type(dtype), ANY_TAG)


def following(lib: Library, added: Any, slope: float | None, in_place: bool = False) -> c_void_p | None:
    """The attribute that adds memory of the descriptor ``added`` to a primitive's result, or with ``in_place`` the
    target's old contents, then applies ReLU; None leaves either out."""
    if not in_place and added is slope is None:
        return None
    post_ops, attribute = lib.make("post_ops_create"), lib.make("primitive_attr_create")
    if in_place:
        lib.call("post_ops_append_sum", post_ops, 1.0, 0, 0)
    elif added is not None:
        lib.call("post_ops_append_binary", post_ops, ADD, added)
    if slope is not None:
        lib.call("post_ops_append_eltwise", post_ops, RELU, slope, 0.0)
    lib.call("primitive_attr_set_post_ops", attribute, post_ops)
    return attribute


class Primitive:
    """A primitive and its memory objects, given as (argument number, memory descriptor) in the order in which ``run``
    takes the arrays; each run sets their pointers to these."""

    def __init__(self, lib: Library, desc: c_void_p, memories: Sequence[tuple[int, Any]]) -> None:
        self._lib, self.desc = lib, desc
        self._primitive = lib.make("primitive_create", desc)
        working = lib.query_md(desc, QUERY_SCRATCHPAD, 0)
        self._n_working = lib.memory_desc_get_size(working) if working else 0
        if self._n_working:
            memories = [*memories, (Arg.SCRATCHPAD, working)]
        self._descs = memories
        self._memories = [lib.make("memory_create", md, lib.engine, None) for _, md in memories]
        self._n_bytes = [lib.memory_desc_get_size(md) for _, md in memories]
        self._places = [0] * len(memories)
        self._arguments = self._make_arguments(self._memories)
        self._execute = self._call(self._arguments)

    def _make_arguments(self, memories: Sequence[c_void_p]) -> ctypes.Array[_Argument]:
        return (_Argument * len(memories))(
            *[_Argument(number, memory.value) for (number, _), memory in zip(self._descs, memories, strict=True)])

    def _call(self, arguments: ctypes.Array[_Argument]) -> tuple[int, int, int, int]:
        return self._primitive.value or 0, self._lib.stream.value or 0, len(arguments), ctypes.addressof(arguments)

    def run(self, *arrays: np.ndarray) -> None:
        """Run. Raises MemoryError if oneDNN lacks memory, LayerError if it fails otherwise or an array is too short."""
        lib, places, arrays = self._lib, self._places, self._with_workspace(arrays)
        for i, (array, n_bytes) in enumerate(zip(arrays, self._n_bytes, strict=True)):
            if array.nbytes < n_bytes:
                raise mismatch(n_bytes // 4, array.nbytes // 4)
            place = place_of(array)
            if place != places[i]:
                lib.set_data_handle(self._memories[i], place)
                places[i] = place
        status = lib.execute(*self._execute)
        if status:
            error = refusal("primitive_execute", status)
            raise error if isinstance(error, MemoryError) else LayerError(str(error))

    def prepare_calls(self, *arrays: np.ndarray) -> NativeCalls:
        """The prepared call on these arrays, which must keep their memory. Raises LayerError if one is too short."""
        lib, arrays = self._lib, self._with_workspace(arrays)
        for array, n_bytes in zip(arrays, self._n_bytes, strict=True):
            if array.nbytes < n_bytes:
                raise mismatch(n_bytes // 4, array.nbytes // 4)
        memories = [lib.make("memory_create", md, lib.engine, place_of(array))
                    for (_, md), array in zip(self._descs, arrays, strict=True)]
        arguments = self._make_arguments(memories)
        return NativeCalls([(lib.execute_place, *self._call(arguments), 0, 1, 0)], [self, arrays, memories, arguments])

    def _with_workspace(self, arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        return (*arrays, workspace("onednn", self._n_working)) if self._n_working else arrays


class Reorder:
    """Copies memory from the layout ``source`` to ``target``, or adds it."""

    def __init__(self, lib: Library, source: Any, target: Any, adds: bool = False) -> None:
        attribute = following(lib, None, None, in_place=adds)
        desc = lib.make("reorder_primitive_desc_create", source, lib.engine, target, lib.engine, attribute)
        self.run = Primitive(lib, desc, [(Arg.SRC, source), (Arg.DST, target)]).run


def place_of(array: np.ndarray) -> int:
    """The address of an array's memory."""
    place: int = array.__array_interface__["data"][0]
    return place


def scratch(lib: Library, desc: Any) -> np.ndarray:
    """Zeroed memory of the size of a descriptor, uint8."""
    return zeros(max(lib.memory_desc_get_size(desc), 1), np.uint8)


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
        workspace = [] if kept is None else [(Arg.WORKSPACE, kept)]
        self._forward = Primitive(lib, forward, [(Arg.SRC, x), (Arg.DST, y), *workspace])
        self._backward = Primitive(lib, backward, [(Arg.DIFF_DST, y), (Arg.DIFF_SRC, x), *workspace])

    def forward(self, x: np.ndarray, y: np.ndarray, mask: np.ndarray | None = None) -> None:
        """Pool x into y. Maxima are kept for backward in oneDNN's own form, so ``mask`` is not supported."""
        self._forward.run(x, y, *self._kept)

    def prepare_calls(self, x: np.ndarray, y: np.ndarray) -> NativeCalls:
        return self._forward.prepare_calls(x, y, *self._kept)

    def backward(self, gy: np.ndarray, gx: np.ndarray) -> None:
        self._backward.run(gy, gx, *self._kept)
