"""cuDNN Frontend graphs: built for one geometry, with the fastest plan, and run on addresses.

Tensors are channels-last. Only deterministic engines are allowed. Sums are float32; products of float32 use TF32 only
if configured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Protocol

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.cudnn import plan_choices as choices
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.specs import Ints, storage_strides

TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
MOST_TRIED = 6  # plans that are timed
MOST_SECONDS = 0.5  # of building plans for one graph, once there is one: those compiled on the spot take that long each
N_TIMED = 3
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
    """A graph with its chosen plan: ``run({X: array, ...}, workspace)``."""

    graph: Any
    index: int
    n_workspace_bytes: int
    key: Key

    def __post_init__(self) -> None:
        self._n_elems = {number: prod(shape) for number, (shape, _) in self.key.tensors.items()}

    def run(self, arrays: Mapping[int, Any], workspace: Any) -> None:
        """Queue the graph on the current stream. Raises LayerError if an array and its tensor differ in length."""
        for number, array in arrays.items():
            expect_elems(self._n_elems[number], array)
        addresses = {number: array.data.ptr for number, array in arrays.items()}
        hosts = {number: value.ctypes.data for number, value in self.key.constants.items()}
        self.graph.execute_plan_at_index({**addresses, **hosts}, workspace.data.ptr, self.index,
                                         handle=on_current_stream())


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
    return getattr(frontend().data_type, TYPES[np.dtype(dtype).name])


class _Handle:
    """The process's handle and the stream that it was given last."""

    handle: Any = None
    stream = -1


def on_current_stream() -> Any:
    """cuDNN's handle, set to CuPy's current stream."""
    stream = device.load().cuda.get_current_stream().ptr
    if _Handle.handle is None:
        _Handle.handle = frontend().create_handle()
    if _Handle.stream != stream:
        frontend().set_stream(handle=_Handle.handle, stream=stream)
        _Handle.stream = stream
    return _Handle.handle


def make_graph(key: Key, **place: Any) -> Any:
    """The graph of a key, without plans. ``place`` names the device: a handle, or the properties of a device."""
    cudnn = frontend()
    real = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(io_data_type=data_type(key.dtype), intermediate_data_type=real, compute_data_type=real,
                          **place)
    key.draw(Sheet(graph, key))
    return graph


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


def build_plans(graph: Any, wanted: str | None = None) -> list[int]:
    """Build the plan named ``wanted``, or the first few that can be built. Returns their indices."""
    built: list[int] = []
    until = time.perf_counter() + MOST_SECONDS
    for index in range(graph.get_execution_plan_count()):
        if len(built) == (1 if wanted else MOST_TRIED) or (built and time.perf_counter() > until):
            break
        if wanted and graph.get_plan_name_at_index(index) != wanted:
            continue
        try:
            graph.build_plan_at_index(index)
        except Exception:  # noqa: S112 - a plan that cannot be built here is no candidate; others may be
            continue
        built.append(index)
    return built


@cache
def build(key: Key) -> Built | None:
    """The graph of a key with its fastest plan, timed once on each machine; None if cuDNN has no plan."""
    try:
        graph = make_graph(key, handle=on_current_stream())
        plan_graph(graph, key)
    except Exception as error:
        if "Not" in type(error).__name__ or isinstance(error, RuntimeError):
            return None
        raise
    name = _name(key)
    known = choices.chosen(name)
    candidates = build_plans(graph, known) or build_plans(graph)
    if not candidates:
        return None
    best = candidates[0] if len(candidates) == 1 else _fastest(key, graph, candidates)
    if known is None:
        choices.remember(name, graph.get_plan_name_at_index(best))
    return Built(graph, best, graph.get_workspace_size_plan_at_index(best), key)


def _name(key: Key) -> str:
    """What a choice is remembered under."""
    properties = device.describe(device.load().cuda.runtime.getDevice())
    return f"{properties['Name']}, cuDNN {frontend().backend_version()}, {key}"


def _fastest(key: Key, graph: Any, candidates: list[int]) -> int:
    """The place of the plan that takes least time on arrays of its own."""
    cupy = device.load()
    arrays = {number: cupy.zeros(shape, dtype) for number, (shape, dtype) in key.tensors.items()}
    workspace = cupy.empty(max(max(map(graph.get_workspace_size_plan_at_index, candidates)), 1), np.uint8)
    return min(candidates, key=lambda index: _seconds(
        lambda: Built(graph, index, 0, key).run(arrays, workspace)))


def _seconds(work: Callable[[], Any]) -> float:
    """The shortest of a few runs on the device."""
    cuda = device.load().cuda
    work()
    times: list[float] = []
    for _ in range(N_TIMED):
        start, end = cuda.Event(), cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(cuda.get_elapsed_time(start, end) / 1e3)
    return min(times)
