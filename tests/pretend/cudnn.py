"""Enough of cuDNN's Frontend to run graphs of convolutions and norms on pretend device memory, on raw addresses.

It holds callers to the real one's rules: tensors have numbers, dimensions and strides; a graph runs only after all
steps of its making; a plan runs only once it is built; a fused graph of float32 needs tensor cores; norms have one
engine with its limits. No result of a norm may lie on what it is computed from: cuDNN does not promise that this works.
"""

from __future__ import annotations

import ctypes
import pickle
from enum import Enum
from types import ModuleType
from typing import Any

import numpy as np

from tests.pretend.cudnn_operations import NORMS, Node, compute, norm_refused
from tests.pretend.cudnn_tensors import Tensor, data_type
from tests.pretend.queue import enqueue, stream_at
from tests.pretend.tf32 import rounded_to_tf32, with_winograd_error

STEPS = ("validate", "build_operation_graph", "create_execution_plans", "deselect_numeric_notes", "check_support")


class heur_mode(Enum):
    A, B, FALLBACK = range(3)


class behavior_note(Enum):
    RUNTIME_COMPILATION, SUPPORTS_CUDA_GRAPH_NATIVE_API = range(2)


class numerical_note(Enum):
    (TENSOR_CORE, DOWN_CONVERT_INPUTS, REDUCED_PRECISION_REDUCTION, NONDETERMINISTIC, FFT, WINOGRAD,
     WINOGRAD_TILE_4x4, WINOGRAD_TILE_6x6, WINOGRAD_TILE_13x13) = range(9)


class cudnnGraphNotSupportedError(RuntimeError):
    """No engine takes the graph."""


class pygraph:
    """A graph of one convolution, with bias and ReLU behind it or not, or of a norm."""

    log: list[str] = []  # what ran, for tests
    compiled: list[str] = []  # graphs for which a plan's kernels were compiled
    n_plans = 3  # of which the first cannot be built

    @staticmethod
    def workspace(graph: pygraph, index: int) -> int:
        """Bytes that a plan works in; tests put others in this one's place."""
        return 1024 * index

    def __init__(self, io_data_type: Any, intermediate_data_type: Any, compute_data_type: Any, handle: Any) -> None:
        if compute_data_type is not data_type.FLOAT:
            raise RuntimeError("sums are float32's")
        self._handle, self._done, self._built = handle, [], set()
        self._last = 0
        self._tensors: list[Tensor] = []
        self._nodes: list[Node] = []
        self._notes: list[Any] = []
        self._compiles = True

    def tensor(self, dim: list[int], stride: list[int], data_type: Any, is_pass_by_value: bool = False) -> Tensor:
        if len(dim) < 4:
            raise RuntimeError("tensors have at least four dimensions")
        self._tensors.append(Tensor(dim, stride, data_type, is_pass_by_value))
        return self._tensors[-1]

    def _add(self, name: str, inputs: tuple[Tensor, ...], n_outputs: int = 1, **options: Any) -> Any:
        outputs = tuple(Tensor() for _ in range(n_outputs))
        self._tensors += outputs
        self._nodes.append(Node(name, inputs, outputs, options))
        return outputs[0] if n_outputs == 1 else list(outputs)

    def conv_fprop(self, image: Tensor, weight: Tensor, **window: Any) -> Tensor:
        return self._add("conv_fprop", (image, weight), **window)

    def conv_dgrad(self, loss: Tensor, filter: Tensor, **window: Any) -> Tensor:
        return self._add("conv_dgrad", (loss, filter), **window)

    def conv_wgrad(self, image: Tensor, loss: Tensor, **window: Any) -> Tensor:
        return self._add("conv_wgrad", (image, loss), **window)

    def bias(self, input: Tensor, bias: Tensor) -> Tensor:
        return self._add("bias", (input, bias))

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self._add("add", (a, b))

    def relu(self, input: Tensor, negative_slope: float = 0.0) -> Tensor:
        return self._add("relu", (input,), negative_slope=negative_slope)

    def relu_backward(self, loss: Tensor, input: Tensor, negative_slope: float = 0.0) -> Tensor:
        return self._add("relu_backward", (loss, input), negative_slope=negative_slope)

    def cmp_gt(self, input: Tensor, comparison: Tensor) -> Tensor:
        return self._add("cmp_gt", (input, comparison))

    def binary_select(self, input0: Tensor, input1: Tensor, mask: Tensor) -> Tensor:
        return self._add("binary_select", (input0, input1, mask))

    def batchnorm(self, input: Tensor, scale: Tensor, bias: Tensor, in_running_mean: None, in_running_var: None,
                  epsilon: Tensor, momentum: None) -> list[Tensor | None]:
        if (in_running_mean, in_running_var, momentum) != (None, None, None) or not epsilon.on_host:
            raise NotImplementedError("running means are not pretended; epsilon is passed by value")
        return [*self._add("batchnorm", (input, scale, bias, epsilon), 3), None, None]

    def batchnorm_inference(self, input: Tensor, mean: Tensor, inv_variance: Tensor, scale: Tensor,
                            bias: Tensor) -> Tensor:
        return self._add("batchnorm_inference", (input, mean, inv_variance, scale, bias))

    def batchnorm_backward(self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor,
                           inv_variance: Tensor) -> list[Tensor]:
        return self._add("batchnorm_backward", (grad, input, scale, mean, inv_variance), 3)

    # -- the steps of its making ---------------------------------------------------------------------------
    def validate(self) -> None:
        self._step("validate")

    def build_operation_graph(self) -> None:
        self._step("build_operation_graph")

    def create_execution_plans(self, modes: list[Any]) -> None:
        self._step("create_execution_plans")
        has_norm = any(node.name in NORMS for node in self._nodes)
        if has_norm and norm_refused(self._nodes):
            raise cudnnGraphNotSupportedError("No valid engine configs")

    def deselect_numeric_notes(self, notes: list[Any]) -> None:
        self._step("deselect_numeric_notes")
        self._notes = notes

    def deselect_behavior_notes(self, notes: list[Any]) -> None:
        if self._done[-1] != "deselect_numeric_notes":
            raise RuntimeError(f"deselect_behavior_notes behind {self._done}")
        self._compiles = behavior_note.RUNTIME_COMPILATION not in notes

    def deselect_workspace_greater_than(self, n_bytes: int) -> None:
        self._limit = n_bytes

    def check_support(self) -> None:
        self._step("check_support")
        is_float = self._tensors[0].dtype is data_type.FLOAT
        first = self._nodes[0]
        if not self._compiles and self._has_compiled_engines_alone():
            raise cudnnGraphNotSupportedError("No valid engine configs")
        if first.name in NORMS:
            return
        if len(self._nodes) > 1 and is_float and numerical_note.TENSOR_CORE in self._notes:
            raise cudnnGraphNotSupportedError("No valid engine configs")
        if first.name == "conv_wgrad" and not is_float and first.outputs[0].dtype is data_type.FLOAT:
            raise cudnnGraphNotSupportedError("No valid engine configs")

    def _step(self, name: str) -> None:
        if name != STEPS[len(self._done)]:
            raise RuntimeError(f"{name} behind {self._done}")
        self._done.append(name)

    def get_execution_plan_count(self) -> int:
        return self.n_plans

    @property
    def name(self) -> str:
        """Its operations."""
        return "+".join(node.name for node in self._nodes)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the first operation's first input."""
        return tuple(self._nodes[0].inputs[0].dim)

    def get_plan_name_at_index(self, index: int) -> str:
        return f"eng{index}"

    def build_plan_at_index(self, index: int) -> None:
        if len(self._done) < len(STEPS):
            raise RuntimeError("check_support has not run")
        if index == 0:
            raise RuntimeError("CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: cudnnFinalize Descriptor Failed")
        self._built.add(index)
        self._last = index
        if self._has_compiled_engines_alone():
            pygraph.compiled.append(self.name)

    def _has_compiled_engines_alone(self) -> bool:
        is_float, first = self._tensors[0].dtype is data_type.FLOAT, self._nodes[0]
        return first.name in NORMS or (len(self._nodes) > 1 and not is_float)

    def serialize(self) -> list[int]:
        """The plan that was built last, as numbers of a byte each."""
        return list(pickle.dumps((self._tensors, self._nodes, self._notes, self._last)))

    def deserialize(self, handle: Any, data: list[int]) -> None:
        """Be that graph, with that plan."""
        if isinstance(data, bytes):
            raise RuntimeError("Unable to cast Python instance of type <class 'bytes'> to C++ type '?'")
        if handle not in _streams:
            raise RuntimeError("CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: Check and Set the HANDLE")
        self._tensors, self._nodes, self._notes, self._last = pickle.loads(bytes(data))
        self._built = {self._last}

    def get_workspace_size(self) -> int:
        return self.workspace(self, self._last)

    def execute(self, addresses: dict[int, int], workspace: int, handle: Any) -> None:
        self.execute_plan_at_index(addresses, workspace, self._last, handle)

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self.workspace(self, index)

    def execute_plan_at_index(self, addresses: dict[int, int], workspace: int, index: int, handle: Any) -> None:
        if index not in self._built:
            raise RuntimeError(f"plan {index} is not built")
        wanted = {t.uid for t in self._tensors if t.uid is not None}
        if set(addresses) != wanted:
            raise RuntimeError(f"tensors {wanted} are wanted, got {set(addresses)}")
        self._check_places(addresses)
        ctypes.memset(workspace, 0x7E, self.workspace(self, index))  # a plan may use all of its workspace
        pygraph.log.append(self.name)
        numbers = {id(t): t.on(addresses[t.uid]).astype(np.float64) for t in self._tensors if t.on_host}  # now
        enqueue(lambda: self._run(addresses, numbers), stream_at(_streams[handle]))

    def _check_places(self, addresses: dict[int, int]) -> None:
        if self._nodes[0].name in NORMS:
            taken = {addresses[t.uid] for t in self._tensors if t.uid is not None and not t.is_output}
            given = [addresses[t.uid] for t in self._tensors if t.is_output]
            if taken & set(given) or len(set(given)) < len(given):
                raise RuntimeError(f"results of {self._nodes[-1].name} lie on one another or on what it reads")

    def _read(self, tensor: Tensor, address: int) -> np.ndarray:
        """An input; factors of products lose what tensor cores do not take."""
        values = tensor.read(address)
        is_factor = self._nodes[0].name.startswith("conv") and tensor in self._nodes[0].inputs
        is_cut = is_factor and tensor.dtype is data_type.FLOAT and numerical_note.TENSOR_CORE not in self._notes
        return rounded_to_tf32(values) if is_cut else values

    def _inexact(self, node: Node, results: Any) -> Any:
        """What an engine makes of a convolution in float32 where algorithms that transform tiles are allowed."""
        transforms = {numerical_note.WINOGRAD, numerical_note.FFT} - set(self._notes)
        if node.name.startswith("conv") and self._tensors[0].dtype is data_type.FLOAT and transforms:
            return tuple(map(with_winograd_error, results))
        return results

    def _run(self, addresses: dict[int, int], numbers: dict[int, np.ndarray]) -> None:
        values = numbers | {id(t): self._read(t, addresses[t.uid])
                            for t in self._tensors if t.uid is not None and not t.is_output and not t.on_host}
        shape = self._nodes[0].outputs[0].dim or self._nodes[-1].outputs[0].dim
        for node in self._nodes:
            results = self._inexact(node, compute(node, [values[id(t)] for t in node.inputs], shape))
            for out, result in zip(node.outputs, results, strict=True):
                values[id(out)] = result
                if out.is_output:
                    out.write(result, addresses[out.uid])


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
        "behavior_note": behavior_note,
        "cudnnGraphNotSupportedError": cudnnGraphNotSupportedError, "create_handle": _create_handle,
        "set_stream": _set_stream, "backend_version": lambda: 92800,
        "__version__": "1.25.0", "backend_version_string": lambda: "9.28.0"})
    return made
