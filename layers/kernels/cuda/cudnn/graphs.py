"""cuDNN Frontend graphs: made for one geometry, and run on addresses once a plan is chosen (see ``plans``).

Tensors are channels-last. Only deterministic engines are allowed. Sums are float32; products of float32 use TF32 only
if configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Protocol

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import Ints, storage_strides

TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
SIGNS = np.dtype(np.bool_)  # of tensors of sign bits
MOST_WORKSPACE_BYTES = 1 << 30


class Key(Protocol):
    """The operations and everything that the choice of a plan depends on; hashable."""

    @property
    def dtype(self) -> np.dtype:
        """Element type of the large tensors."""

    @property
    def tf32(self) -> bool:
        """Whether float32 products may be TF32's."""

    @property
    def compiles(self) -> bool:
        """Whether to allow engines that compile kernels when a plan is built, which takes up to a minute."""

    @property
    def tensors(self) -> Mapping[int, tuple[Ints, np.dtype]]:
        """Logical shapes and types of the tensors on the device, by tensor number."""

    @property
    def constants(self) -> Mapping[int, np.ndarray]:
        """Scalars that the graph reads from host memory, by tensor number."""

    def draw(self, sheet: Sheet) -> None:
        """Add the operations to a graph."""


@dataclass
class Sheet:
    """A graph under construction; tensors have numbers."""

    graph: Any
    key: Key

    def tensor(self, number: int) -> Any:
        """An input tensor, which the caller provides at each run."""
        shape, dtype = self.key.tensors[number]
        return self.graph.tensor(dim=list(shape), stride=list(storage_strides(shape)),
                                 data_type=data_type(dtype)).set_uid(number)

    def constant(self, number: int, n_axes: int) -> Any:
        """A scalar, passed from the host at each run."""
        one, dtype = [1] * n_axes, self.key.constants[number].dtype
        return self.graph.tensor(dim=one, stride=one, data_type=data_type(dtype),
                                 is_pass_by_value=True).set_uid(number)

    def give(self, result: Any, number: int) -> None:
        """Make an operation's result an output, the tensor of that number."""
        shape, dtype = self.key.tensors[number]
        result.set_output(True).set_dim(list(shape)).set_stride(list(storage_strides(shape))).set_uid(number)
        result.set_data_type(data_type(dtype))


@dataclass
class Built:
    """A graph with its chosen plan, ``run({X: array, ...}, workspace)``: the Frontend's, the plan's index among the
    graph's (None for one that was read from disk with its one plan), what it works in, the key it was made from, and
    how many micro-batches of its length make a batch."""

    graph: Any
    index: int | None
    n_workspace_bytes: int
    key: Key
    n_parts: int = 1

    def __post_init__(self) -> None:
        self._n_elems = {number: prod(held(*tensor)[0]) for number, tensor in self.key.tensors.items()}
        self._constants = self.key.constants  # kept: cuDNN reads them at their addresses
        self._hosts = {number: value.ctypes.data for number, value in self._constants.items()}

    def run(self, arrays: Mapping[int, Any], workspace: Any) -> None:
        """Queue the graph on the current stream. Raises LayerError if an array and its tensor differ in length."""
        for number, array in arrays.items():
            expect_elems(self._n_elems[number], array)
        addresses = {number: array.data.ptr for number, array in arrays.items()}
        everything, place = {**addresses, **self._hosts}, workspace.data.ptr
        if self.index is None:
            self.graph.execute(everything, place, handle=on_current_stream())
        else:
            self.graph.execute_plan_at_index(everything, place, self.index, handle=on_current_stream())


@cache
def frontend() -> Any:
    """The module ``cudnn``; None if it or the cuDNN library is missing."""
    try:
        import cudnn

        cudnn.backend_version()
    except Exception:  # it raises what ctypes and glob raise, and its own
        return None
    return cudnn


def reason() -> str:
    """One line: the version of cuDNN, or that it is missing and what computes convolutions instead."""
    found = frontend()
    if found is None:
        return "no cuDNN (packages nvidia-cudnn-frontend<=1.25, nvidia-cudnn-cu12 or -cu13): convolutions by products"
    return f"cuDNN {found.backend_version_string()}"


def data_type(dtype: np.dtype) -> Any:
    """The Frontend's name of a type."""
    name = "BOOLEAN" if dtype == SIGNS else TYPES[np.dtype(dtype).name]
    return getattr(frontend().data_type, name)


def held(shape: Ints, dtype: np.dtype) -> tuple[Ints, np.dtype]:
    """Shape and type of the array that holds a tensor: cuDNN packs eight sign bits a byte."""
    return ((prod(shape) // 8,), np.dtype(np.uint8)) if dtype == SIGNS else (shape, dtype)


class _Handle:
    """A handle and the stream that it was given last."""

    def __init__(self) -> None:
        self.handle, self.stream = frontend().create_handle(), -1


_handle = device.PerDevice(_Handle)


def on_current_stream() -> Any:
    """The current device's handle of cuDNN, set to CuPy's current stream."""
    stream, own = device.load().cuda.get_current_stream().ptr, _handle()
    if own.stream != stream:
        frontend().set_stream(handle=own.handle, stream=stream)
        own.stream = stream
    return own.handle


def make_graph(key: Key, **place: Any) -> Any:
    """The graph of a key, without plans. ``place`` names the device: a handle, or the properties of a device."""
    graph = empty_graph(key, place)
    key.draw(Sheet(graph, key))
    return graph


def empty_graph(key: Key, place: Mapping[str, Any]) -> Any:
    """A graph without operations, in which sums are float32."""
    real = frontend().data_type.FLOAT
    return frontend().pygraph(io_data_type=data_type(key.dtype), intermediate_data_type=real, compute_data_type=real,
                              **place)


def plan_graph(graph: Any, key: Key) -> None:
    """List the graph's plans, best guess first. Raises the Frontend's error if there is none."""
    cudnn = frontend()
    graph.validate()
    graph.build_operation_graph()
    unwanted = ["NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION"]
    if key.dtype == np.float32 and not key.tf32:
        unwanted += ["TENSOR_CORE", "DOWN_CONVERT_INPUTS"]
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, note) for note in unwanted])
    if not key.compiles:
        graph.deselect_behavior_notes([cudnn.behavior_note.RUNTIME_COMPILATION])
    graph.deselect_workspace_greater_than(MOST_WORKSPACE_BYTES)
    graph.check_support()
