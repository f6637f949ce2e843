"""Finds and calls oneDNN's library, libdnnl.so.3."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import POINTER, byref, c_float, c_int, c_int64, c_size_t, c_void_p
from ctypes.util import find_library
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from scaffe import forking
from scaffe.environment import ONEDNN
from scaffe.layers.kernels.specs import ConvSpec, PoolSpec
from scaffe.log import warning

NAME = "libdnnl.so.3"
OPENMP = "libgomp.so.1"  # what oneDNN's package is linked to
PAUSE_HARD = 2  # omp_pause_hard
ISAS = {0x1: "SSE4.1", 0x3: "AVX", 0x7: "AVX2", 0xF: "AVX2-VNNI", 0x1F: "AVX2-VNNI-2", 0x27: "AVX512",
        0x67: "AVX512-VNNI", 0xE7: "AVX512-BF16", 0x1EF: "AVX10.1/AVX512-FP16", 0xFEF: "AMX", 0x1FEF: "AMX-FP16"}
"""Instruction sets of x86 by oneDNN's number (dnnl_cpu_isa_t)."""
CPU, ANY_TAG, BFLOAT16, FLOAT32 = 1, 1, 2, 3
OURS = 1  # dnnl_scratchpad_mode_user
HAS_BFLOAT16 = (0xE0, 0x1E0)  # bits that are set in the numbers of instruction sets that multiply bfloat16
STATUS = ("success", "out of memory", "invalid arguments", "unimplemented", "last implementation reached",
          "runtime error", "not required")
OUT_OF_MEMORY = STATUS.index("out of memory")
OWNED = ("memory_desc", "memory", "post_ops", "primitive_attr", "primitive_desc", "primitive")  # longer names first
SPINS = "4000"
"""How often an OpenMP thread polls for work before it sleeps: 0.1 ms, longer than most waits between two kernels. The
default, 300,000 times, starves another process on the same core."""
HANDLE, HANDLES, DIMS = c_void_p, POINTER(c_void_p), POINTER(c_int64)
SIGNATURES: dict[str, list[Any]] = {
    "engine_create": [HANDLES, c_int, c_size_t],
    "stream_create": [HANDLES, HANDLE, c_int],
    "memory_desc_create_with_strides": [HANDLES, c_int, DIMS, c_int, DIMS],
    "memory_desc_create_with_tag": [HANDLES, c_int, DIMS, c_int, c_int],
    "memory_create": [HANDLES, HANDLE, HANDLE, c_void_p],
    "memory_set_data_handle": [HANDLE, c_void_p],
    "post_ops_create": [HANDLES],
    "post_ops_append_eltwise": [HANDLE, c_int, c_float, c_float],
    "post_ops_append_sum": [HANDLE, c_float, ctypes.c_int32, c_int],
    "post_ops_append_binary": [HANDLE, c_int, HANDLE],
    "primitive_attr_create": [HANDLES],
    "primitive_attr_set_post_ops": [HANDLE, HANDLE],
    "primitive_attr_set_scratchpad_mode": [HANDLE, c_int],
    "primitive_create": [HANDLES, HANDLE],
    "convolution_forward_primitive_desc_create": [HANDLES, HANDLE, c_int, c_int] + [HANDLE] * 4 + [DIMS] * 4 + [HANDLE],
    "convolution_backward_data_primitive_desc_create": [HANDLES, HANDLE, c_int] + [HANDLE] * 3 + [DIMS] * 4
                                                       + [HANDLE] * 2,
    "convolution_backward_weights_primitive_desc_create": [HANDLES, HANDLE, c_int] + [HANDLE] * 4 + [DIMS] * 4
                                                          + [HANDLE] * 2,
    "pooling_forward_primitive_desc_create": [HANDLES, HANDLE, c_int, c_int] + [HANDLE] * 2 + [DIMS] * 5 + [HANDLE],
    "pooling_backward_primitive_desc_create": [HANDLES, HANDLE, c_int] + [HANDLE] * 2 + [DIMS] * 5 + [HANDLE] * 2,
    "matmul_primitive_desc_create": [HANDLES, HANDLE] + [HANDLE] * 5,
    "inner_product_forward_primitive_desc_create": [HANDLES, HANDLE, c_int] + [HANDLE] * 5,
    "inner_product_backward_data_primitive_desc_create": [HANDLES, HANDLE] + [HANDLE] * 5,
    "inner_product_backward_weights_primitive_desc_create": [HANDLES, HANDLE] + [HANDLE] * 6,
    "reorder_primitive_desc_create": [HANDLES, HANDLE, HANDLE, HANDLE, HANDLE, HANDLE],
}


class OnednnError(RuntimeError):
    """A oneDNN call failed. ``unimplemented`` is true if oneDNN has no kernel for the case."""

    def __init__(self, function: str, status: int) -> None:
        self.unimplemented = status == 3
        super().__init__(f"dnnl_{function}: {STATUS[status] if status < len(STATUS) else status}")


def refusal(function: str, status: int) -> Exception:
    """The exception for a status other than success: MemoryError if oneDNN lacks memory, else OnednnError."""
    error = OnednnError(function, status)
    return MemoryError(str(error)) if status == OUT_OF_MEMORY else error


class _Handle(c_void_p):
    """A handle that is destroyed with its last reference, so that nets that change shape do not leak memory."""

    destroy: Any = None

    def __del__(self) -> None:
        if self.destroy is not None:
            self.destroy(self)


class Library:
    """The loaded library with its CPU engine and stream. Calls release the interpreter's lock."""

    def __init__(self, path: str) -> None:
        from scaffe import signal_mask  # numba: only where oneDNN is used

        self.path = path
        self._dll = ctypes.CDLL(path)
        for name, types in SIGNATURES.items():
            getattr(self._dll, f"dnnl_{name}").argtypes = types
        for kind in OWNED:
            getattr(self._dll, f"dnnl_{kind}_destroy").argtypes = [HANDLE]
        self._dll.dnnl_version.restype = POINTER(c_int * 3)  # what the struct begins with
        self.version = ".".join(map(str, self._dll.dnnl_version().contents))
        self.memory_desc_get_size = self._dll.dnnl_memory_desc_get_size
        self.memory_desc_get_size.argtypes, self.memory_desc_get_size.restype = [HANDLE], c_size_t
        self.memory_desc_equal = self._dll.dnnl_memory_desc_equal
        self.memory_desc_equal.argtypes, self.memory_desc_equal.restype = [HANDLE, HANDLE], c_int
        self.query_md = self._dll.dnnl_primitive_desc_query_md
        self.query_md.argtypes, self.query_md.restype = [HANDLE, c_int, c_int], HANDLE
        self.engine = self.make("engine_create", CPU, 0)
        self.stream = self.make("stream_create", self.engine, 1)
        self.execute = signal_mask.caller(self._dll.dnnl_primitive_execute)  # bare: the hot path checks its status
        self.execute_place = ctypes.cast(self._dll.dnnl_primitive_execute, c_void_p).value or 0
        self.set_data_handle = self._dll.dnnl_memory_set_data_handle

    def instruction_set(self) -> str:
        """The widest instruction set that oneDNN uses on this processor."""
        number = self._dll.dnnl_get_effective_cpu_isa()
        return ISAS.get(number, f"instruction set {number:#x}")

    def multiplies_bfloat16(self) -> bool:
        """Whether this processor has instructions for products of bfloat16 numbers, which oneDNN uses."""
        number = self._dll.dnnl_get_effective_cpu_isa()
        return any(number & bits == bits for bits in HAS_BFLOAT16)

    def call(self, function: str, *args: Any) -> None:
        """Call a function; a status other than success raises OnednnError, or MemoryError."""
        status = getattr(self._dll, f"dnnl_{function}")(*args)
        if status:
            raise refusal(function, status)

    def make(self, function: str, *args: Any) -> c_void_p:
        """Call a function whose first argument receives a new handle. ``Primitive`` provides a primitive's scratchpad:
        oneDNN's own may belong to the thread that makes it, and another thread then writes to address 0 (convolutions
        by gemm do)."""
        handle = _Handle()
        if function.endswith("primitive_desc_create"):
            attribute = args[-1] or self.make("primitive_attr_create")
            self.call("primitive_attr_set_scratchpad_mode", attribute, OURS)
            args = (*args[:-1], attribute)
        self.call(function, byref(handle), *args)
        kind = next((kind for kind in OWNED if function.startswith(kind) or function.endswith(f"{kind}_create")), None)
        if kind is not None:
            handle.destroy = getattr(self._dll, f"dnnl_{kind}_destroy")
        return handle


def dims(values: tuple[int, ...]) -> Any:
    """A C array of 64-bit dimensions."""
    return (c_int64 * 12)(*values)


@cache
def library() -> Library | None:
    """The library, loaded once; None if it cannot be loaded (``reason`` says why)."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    for path in _candidates():
        try:
            found = Library(path)
            forking.before_fork(_end_threads)
            return found
        except (OSError, AttributeError, OnednnError) as error:
            if given := ONEDNN.get():
                warning(f"{ONEDNN.name}={given}: no {NAME} (version 3) that can be loaded ({error}); the portable "
                        "kernels run, which are slower")
    return None


def _end_threads() -> None:
    """End OpenMP's threads of this thread before a fork, by omp_pause_resource_all (GCC 9 on; 30 us for two threads);
    the next kernel starts them again. GNU's do not survive a fork, and the child would wait for them for ever."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(OPENMP).omp_pause_resource_all(PAUSE_HARD)


def reason() -> str:
    """Where oneDNN was found, or why the portable kernels run, in one line."""
    found = library()
    if found is not None:
        return f"oneDNN: {found.version}, {found.path}"
    return (f"no {NAME} (version 3) could be loaded (tried {ONEDNN.name}, the package onednn-cpu-gomp and the "
            "system; it also needs libgomp.so.1); the portable kernels run, which are slower")


def _candidates() -> Iterator[str]:
    given = ONEDNN.get()
    if given is not None:
        yield given  # an empty path asks for the portable kernels
        return
    try:
        files = metadata.files("onednn-cpu-gomp") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == NAME:
            yield str(Path(str(file.locate())).resolve())
    yield NAME
    system = find_library("dnnl")
    if system:
        yield system


Plan = TypeVar("Plan")


def supports(spec: ConvSpec | PoolSpec) -> bool:
    """Whether the element type is one that oneDNN computes with, and the images are not empty."""
    return (spec.dtype == np.float32 or spec.dtype.kind == "V") and 0 not in spec.in_shape


def can(build: Callable[[], None]) -> bool:
    """Whether ``build`` succeeds, since oneDNN has the kernels that it builds."""
    try:
        build()
    except OnednnError as error:
        if error.unimplemented:
            return False
        raise
    return True


def attempt(plan: Callable[..., Plan], *arguments: Any) -> Plan | None:
    """``make(library, *args)``, a plan by oneDNN; None if oneDNN is missing or has no kernel for it."""
    lib = library()
    try:
        return None if lib is None else plan(lib, *arguments)
    except OnednnError as error:
        if error.unimplemented:
            return None
        raise
