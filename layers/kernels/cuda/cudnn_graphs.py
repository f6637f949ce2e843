"""Convolutions as graphs of cuDNN's Frontend: built for one geometry, the fastest plan taken, run on addresses.

Channels-last tensors throughout; one spatial axis is taken as two. Only engines that give the same bits every time are
allowed, and sums are float32's; products are TF32's only where that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

from layers import device
from layers.kernels.cuda import choices
from layers.kernels.cuda.precision import precision
from layers.kernels.specs import ConvSpec, Ints, storage_strides

X, W, Y, BIAS = 1, 2, 3, 4  # the tensors' numbers in every graph; gradients have their values' numbers
FORWARD, BY_DATA, BY_WEIGHTS = "conv_fprop", "conv_dgrad", "conv_wgrad"
TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
MOST_TRIED = 6  # plans that are timed
N_TIMED = 3
MOST_WORKSPACE_BYTES = 1 << 30


@dataclass(frozen=True)
class Key:
    """What a plan depends on.

    Attributes:
        kind: FORWARD, BY_DATA or BY_WEIGHTS.
        spec: the geometry, of two or three spatial axes.
        tf32: whether float32 products may be TF32's.
        bias: a bias is added.
        slope: ReLU of that slope follows; None is none.
    """

    kind: str
    spec: ConvSpec
    tf32: bool
    bias: bool = False
    slope: float | None = None


@dataclass
class Built:
    """A graph with its chosen plan: ``run({X: address, ...}, workspace address)``."""

    graph: Any
    index: int
    n_workspace_bytes: int

    def run(self, addresses: dict[int, int], workspace: int) -> None:
        """Queue it on the current stream."""
        self.graph.execute_plan_at_index(addresses, workspace, self.index, handle=on_current_stream())


@cache
def frontend() -> Any:
    """The Frontend's module, or None where it or cuDNN is missing."""
    try:
        import cudnn

        cudnn.backend_version()
    except Exception:  # it raises what ctypes and glob raise, and its own
        return None
    return cudnn


def reason() -> str:
    """One line: which cuDNN computes convolutions, or why none does."""
    found = frontend()
    if found is None:
        return "no cuDNN (packages nvidia-cudnn-frontend<=1.25, nvidia-cudnn-cu12 or -cu13): convolutions by products"
    return f"cuDNN {found.backend_version_string()}"


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


def widened(spec: ConvSpec) -> ConvSpec:
    """A geometry of one spatial axis as one of two; others as they are."""
    if len(spec.kernel) != 1:
        return spec
    n, c, length = spec.in_shape
    return replace(spec, in_shape=(n, c, 1, length), kernel=(1, *spec.kernel), stride=(1, *spec.stride),
                   pad=(0, *spec.pad), dilation=(1, *spec.dilation))


def make_graph(key: Key, **place: Any) -> Any:
    """The graph of a key, not yet planned. ``place`` says for which device: a handle, or properties of one."""
    cudnn = frontend()
    real, narrow = cudnn.data_type.FLOAT, getattr(cudnn.data_type, TYPES[np.dtype(key.spec.dtype).name])
    graph = cudnn.pygraph(io_data_type=narrow, intermediate_data_type=real, compute_data_type=real, **place)

    def tensor(number: int, shape: Ints, dtype: Any = narrow) -> Any:
        return graph.tensor(dim=list(shape), stride=list(storage_strides(shape)), data_type=dtype).set_uid(number)

    spec = key.spec
    shapes = {X: spec.in_shape, W: spec.weight_shape, Y: spec.out_shape}
    window = {"padding": list(spec.pad), "stride": list(spec.stride), "dilation": list(spec.dilation)}
    if key.kind == FORWARD:
        result, number = graph.conv_fprop(tensor(X, shapes[X]), tensor(W, shapes[W]), **window), Y
    elif key.kind == BY_DATA:
        result, number = graph.conv_dgrad(tensor(Y, shapes[Y]), tensor(W, shapes[W]), **window), X
    else:
        result, number = graph.conv_wgrad(tensor(X, shapes[X]), tensor(Y, shapes[Y]), **window), W
    if key.bias:
        result = graph.bias(result, tensor(BIAS, (1, spec.n_output, *(1,) * len(spec.kernel)), real))
    if key.slope is not None:
        result = graph.relu(result, negative_slope=key.slope) if key.slope else graph.relu(result)
    shape = shapes[number]
    result.set_output(True).set_dim(list(shape)).set_stride(list(storage_strides(shape))).set_uid(number)
    result.set_data_type(narrow)  # cuDNN 9 sums half types' products in float, but gives them back narrow only
    return graph


def plan_graph(graph: Any, key: Key) -> None:
    """List the graph's plans, best guess first. Raises what the Frontend raises where there is none."""
    cudnn = frontend()
    graph.validate()
    graph.build_operation_graph()
    unwanted = ["NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION"]
    if np.dtype(key.spec.dtype) == np.float32 and not key.tf32:
        unwanted += ["TENSOR_CORE", "DOWN_CONVERT_INPUTS"]
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, note) for note in unwanted])
    graph.deselect_workspace_greater_than(MOST_WORKSPACE_BYTES)
    graph.check_support()


def build_plans(graph: Any, wanted: str | None = None) -> list[int]:
    """Build the plan of that name, or the first few that can be built; their places."""
    built: list[int] = []
    for index in range(graph.get_execution_plan_count()):
        if len(built) == (1 if wanted else MOST_TRIED):
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
    """The graph of a key with its fastest plan, found by timing once a machine; None where cuDNN has none."""
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
    return Built(graph, best, graph.get_workspace_size_plan_at_index(best))


def _name(key: Key) -> str:
    """What a choice is remembered under."""
    properties = device.describe(device.load().cuda.runtime.getDevice())
    return f"{properties['Name']}, cuDNN {frontend().backend_version()}, {key}"


def _fastest(key: Key, graph: Any, candidates: list[int]) -> int:
    """The place of the plan that takes least time on arrays of its own."""
    cupy, spec = device.load(), key.spec
    shapes = {X: spec.in_shape, W: spec.weight_shape, Y: spec.out_shape, BIAS: (spec.n_output,)}
    n_bytes = {number: 4 * prod(shape) for number, shape in shapes.items()}
    arrays = {number: cupy.zeros(n, np.uint8) for number, n in n_bytes.items()}
    addresses = {number: a.data.ptr for number, a in arrays.items() if number != BIAS or key.bias}
    workspace = cupy.empty(max(max(map(graph.get_workspace_size_plan_at_index, candidates)), 1), np.uint8)
    return min(candidates, key=lambda index: _seconds(
        lambda: Built(graph, index, 0).run(addresses, workspace.data.ptr)))


def _seconds(work: Callable[[], Any]) -> float:
    """The shortest of a few runs on the device."""
    cuda = device.load().cuda
    work()
    times = []
    for _ in range(N_TIMED):
        start, end = cuda.Event(), cuda.Event()
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(cuda.get_elapsed_time(start, end) / 1e3)
    return min(times)


def key_of(kind: str, spec: ConvSpec, bias: bool = False, slope: float | None = None) -> Key:
    """The key of a pass, by the precision that is set."""
    return Key(kind, widened(replace(spec, bias=False)), precision.tf32, bias, slope)
