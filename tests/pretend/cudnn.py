"""Enough of cuDNN's Frontend to run convolution graphs on pretend device memory, place by place on raw addresses.

It holds callers to the real one's rules: tensors have numbers, dimensions and strides; a graph runs only after all
steps of its making; a plan runs only once it is built; a fused graph of float32 needs tensor cores.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tests.pretend.queue import enqueue, stream_at

STEPS = ("validate", "build_operation_graph", "create_execution_plans", "deselect_numeric_notes", "check_support")


class data_type(Enum):
    FLOAT, DOUBLE, HALF, BFLOAT16, NOT_SET = range(5)


class heur_mode(Enum):
    A, B, FALLBACK = range(3)


class numerical_note(Enum):
    TENSOR_CORE, DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION, NONDETERMINISTIC = range(4)


class cudnnGraphNotSupportedError(RuntimeError):
    """No engine takes the graph."""


class Tensor:
    """A tensor's description; setters give the tensor back."""

    def __init__(self, dim: list[int] | None = None, stride: list[int] | None = None, dtype: Any = None) -> None:
        self.dim, self.stride, self.dtype, self.uid, self.is_output = dim, stride, dtype, None, False

    def set_uid(self, uid: int) -> Tensor:
        self.uid = uid
        return self

    def set_output(self, is_output: bool) -> Tensor:
        self.is_output = is_output
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self

    def set_data_type(self, dtype: Any) -> Tensor:
        self.dtype = dtype
        return self

    def on(self, address: int) -> np.ndarray:
        """The memory at an address, of this description."""
        import ml_dtypes

        if address % 16:
            raise RuntimeError(f"tensor {self.uid} lies at {address:#x}, which is not a multiple of 16")
        dtype = np.dtype({"FLOAT": np.float32, "HALF": np.float16, "BFLOAT16": ml_dtypes.bfloat16}[self.dtype.name])
        n_elems = 1 + sum((n - 1) * s for n, s in zip(self.dim, self.stride))
        raw = np.frombuffer((ctypes.c_uint8 * (n_elems * dtype.itemsize)).from_address(address), np.uint8)
        return as_strided(raw.view(dtype), self.dim, [s * dtype.itemsize for s in self.stride])


class pygraph:
    """A graph of one convolution, with bias and ReLU behind it or not."""

    log: list[str] = []  # what ran, for tests

    def __init__(self, io_data_type: Any, intermediate_data_type: Any, compute_data_type: Any, handle: Any) -> None:
        if compute_data_type is not data_type.FLOAT:
            raise RuntimeError("sums are float32's")
        self._handle, self._done, self._built = handle, [], set()
        self._tensors: list[Tensor] = []
        self._nodes: list[tuple[str, tuple[Tensor, ...], Tensor, dict]] = []
        self._notes: list[Any] = []

    def tensor(self, dim: list[int], stride: list[int], data_type: Any) -> Tensor:
        if len(dim) < 4:
            raise RuntimeError("tensors have at least four dimensions")
        self._tensors.append(Tensor(dim, stride, data_type))
        return self._tensors[-1]

    def _add(self, name: str, inputs: tuple[Tensor, ...], **options: Any) -> Tensor:
        self._tensors.append(Tensor())
        self._nodes.append((name, inputs, self._tensors[-1], options))
        return self._tensors[-1]

    def conv_fprop(self, image: Tensor, weight: Tensor, **window: Any) -> Tensor:
        return self._add("conv_fprop", (image, weight), **window)

    def conv_dgrad(self, loss: Tensor, filter: Tensor, **window: Any) -> Tensor:
        return self._add("conv_dgrad", (loss, filter), **window)

    def conv_wgrad(self, image: Tensor, loss: Tensor, **window: Any) -> Tensor:
        return self._add("conv_wgrad", (image, loss), **window)

    def bias(self, input: Tensor, bias: Tensor) -> Tensor:
        return self._add("bias", (input, bias))

    def relu(self, input: Tensor, negative_slope: float = 0.0) -> Tensor:
        return self._add("relu", (input,), slope=negative_slope)

    # -- the steps of its making ---------------------------------------------------------------------------
    def validate(self) -> None:
        self._step("validate")

    def build_operation_graph(self) -> None:
        self._step("build_operation_graph")

    def create_execution_plans(self, modes: list[Any]) -> None:
        self._step("create_execution_plans")

    def deselect_numeric_notes(self, notes: list[Any]) -> None:
        self._step("deselect_numeric_notes")
        self._notes = notes

    def deselect_workspace_greater_than(self, n_bytes: int) -> None:
        self._limit = n_bytes

    def check_support(self) -> None:
        self._step("check_support")
        is_float = self._tensors[0].dtype is data_type.FLOAT
        if len(self._nodes) > 1 and is_float and numerical_note.TENSOR_CORE in self._notes:
            raise cudnnGraphNotSupportedError("No valid engine configs")
        if self._nodes[0][0] == "conv_wgrad" and not is_float and self._nodes[0][2].dtype is data_type.FLOAT:
            raise cudnnGraphNotSupportedError("No valid engine configs")

    def _step(self, name: str) -> None:
        if name != STEPS[len(self._done)]:
            raise RuntimeError(f"{name} behind {self._done}")
        self._done.append(name)

    def get_execution_plan_count(self) -> int:
        return 3

    def get_plan_name_at_index(self, index: int) -> str:
        return f"eng{index}"

    def build_plan_at_index(self, index: int) -> None:
        if len(self._done) < len(STEPS):
            raise RuntimeError("check_support has not run")
        if index == 0:
            raise RuntimeError("CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: cudnnFinalize Descriptor Failed")
        self._built.add(index)

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return 1024 * index

    def execute_plan_at_index(self, addresses: dict[int, int], workspace: int, index: int, handle: Any) -> None:
        if index not in self._built:
            raise RuntimeError(f"plan {index} is not built")
        wanted = {t.uid for t in self._tensors if t.uid is not None}
        if set(addresses) != wanted:
            raise RuntimeError(f"tensors {wanted} are wanted, got {set(addresses)}")
        ctypes.memset(workspace, 0x7E, 1024 * index)  # a plan may use all of its workspace
        pygraph.log.append("+".join(name for name, *_ in self._nodes))
        enqueue(lambda: self._run(addresses), stream_at(_streams[handle]))

    def _run(self, addresses: dict[int, int]) -> None:
        values: dict[int, np.ndarray] = {id(t): t.on(addresses[t.uid]).astype(np.float64)
                                         for t in self._tensors if t.uid is not None and not t.is_output}
        for name, inputs, out, options in self._nodes:
            given = [values[id(t)] for t in inputs]
            if name == "bias":
                result = given[0] + given[1]
            elif name == "relu":
                result = np.where(given[0] > 0, given[0], options["slope"] * given[0])
            else:
                shape = self._nodes[0][2].dim or self._nodes[-1][2].dim
                result = _convolution(name, given[0], given[1], shape, options)
            values[id(out)] = result
            if out.is_output:
                target = out.on(addresses[out.uid])
                target[...] = result.reshape(target.shape)


def _convolution(name: str, a: np.ndarray, b: np.ndarray, shape: list[int], options: dict) -> np.ndarray:
    """Tap by tap; ``shape`` is the result's, of which padding and groups follow."""
    pad, stride, dilation = options["padding"], options["stride"], options["dilation"]
    x_shape, w_shape, y_shape = {"conv_fprop": (a.shape, b.shape, shape), "conv_dgrad": (shape, b.shape, a.shape),
                                 "conv_wgrad": (a.shape, shape, b.shape)}[name]
    padded = np.zeros((*x_shape[:2], *(n + 2 * p for n, p in zip(x_shape[2:], pad))))
    inside = (..., *(slice(p, p + n) for p, n in zip(pad, x_shape[2:])))
    if name != "conv_dgrad":
        padded[inside] = a
    y = a if name == "conv_dgrad" else b if name == "conv_wgrad" else np.zeros(y_shape)
    w = np.zeros(w_shape) if name == "conv_wgrad" else b
    n_groups, n_out = x_shape[1] // w_shape[1], w_shape[0] // (x_shape[1] // w_shape[1])
    for taps in product(*map(range, w_shape[2:])):
        places = tuple(slice(t * d, t * d + (n - 1) * s + 1, s)
                       for t, d, n, s in zip(taps, dilation, y_shape[2:], stride))
        for g in range(n_groups):
            ins, outs = slice(g * w_shape[1], (g + 1) * w_shape[1]), slice(g * n_out, (g + 1) * n_out)
            here, there, tap = (slice(None), ins, *places), (slice(None), outs), (outs, slice(None), *taps)
            if name == "conv_fprop":
                y[there] += np.einsum("nc...,oc->no...", padded[here], w[tap])
            elif name == "conv_dgrad":
                padded[here] += np.einsum("no...,oc->nc...", y[there], w[tap])
            else:
                w[tap] += _rows(y[there]).T @ _rows(padded[here])
    return {"conv_fprop": y, "conv_dgrad": padded[inside], "conv_wgrad": w}[name]


def _rows(images: np.ndarray) -> np.ndarray:
    """(places, channels)."""
    return np.moveaxis(images, 1, -1).reshape(-1, images.shape[1])


_streams: dict[int, int] = {}


def _create_handle() -> int:
    _streams[len(_streams) + 1] = 0
    return len(_streams)


def _set_stream(handle: int, stream: int) -> None:
    _streams[handle] = stream


def module() -> ModuleType:
    """The module ``cudnn``."""
    made = ModuleType("cudnn")
    made.__dict__.update({
        "pygraph": pygraph, "data_type": data_type, "heur_mode": heur_mode, "numerical_note": numerical_note,
        "cudnnGraphNotSupportedError": cudnnGraphNotSupportedError, "create_handle": _create_handle,
        "set_stream": _set_stream, "backend_version": lambda: 92800, "backend_version_string": lambda: "9.28.0"})
    return made
