"""cuDNN's Frontend without a card: real graphs and real plans for a card described by its properties, run as nothing.

cuDNN itself is linked with a CUDA runtime that takes no driver but NVIDIA's, so it has no handle here. What a handle is
asked for is answered here: which device, which stream, whether the addresses of a graph lie on that device.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from types import ModuleType
from typing import Any

from tests.layers.cuda.plan_graphs import H100
from tests.standin.record import ALLOCATION, LAUNCH, WORK, Record


@dataclass
class Handle:
    """A cuDNN handle: its device, and the stream that it was given last."""

    device: int
    stream: int = 0


def install(cudnn: ModuleType, record: Record) -> None:
    """Put handles, and graphs that run as nothing, into the Frontend's module."""
    handles: dict[int, Handle] = {}
    numbers = count(1)

    def create_handle() -> int:
        number = next(numbers)
        record.note("cudnnCreate", ALLOCATION)
        handles[number] = Handle(record.device())
        return number

    def set_stream(handle: int, stream: int) -> None:
        record.note("cudnnSetStream", WORK)
        handles[handle].stream = stream

    vars(cudnn).update(create_handle=create_handle, set_stream=set_stream, pygraph=graph_type(cudnn, handles, record))


def graph_type(cudnn: ModuleType, handles: dict[int, Handle], record: Record) -> type:
    """The Frontend's graph for the described card."""
    real = cudnn.pygraph
    described = {"device_property": cudnn.create_device_properties(json.dumps(H100)), "sm_version": 90}

    class Graph:
        """Passes on what makes and plans a graph; runs it as nothing."""

        def __init__(self, handle: int, **options: Any) -> None:
            self._graph, self._n_by_value = real(**options, **described), 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._graph, name)

        def tensor(self, **options: Any) -> Any:
            self._n_by_value += options.get("is_pass_by_value", False)
            return self._graph.tensor(**options)

        def deserialize(self, handle: int, content: list[int]) -> None:
            raise RuntimeError("a plan that was kept is read by a handle, and there is none")

        def execute_plan_at_index(self, addresses: dict[int, int], workspace: int, index: int, handle: int) -> None:
            own, here = handles[handle], record.device()
            call = record.note("cudnnBackendExecute", LAUNCH, own.stream)
            n_bytes = self._graph.get_workspace_size_plan_at_index(index)
            if own.device != here or (n_bytes and record.owner(workspace, n_bytes) != here):
                raise record.refused(call, f"cuDNN on device {here}: a handle or a workspace of another one")
            elsewhere = [number for number, at in addresses.items() if record.owner(at, 1) != here]
            if len(elsewhere) > self._n_by_value:
                raise record.refused(call, f"cuDNN: of tensors {elsewhere} not all are passed by value")

    return Graph
