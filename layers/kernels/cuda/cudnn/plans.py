"""Which of cuDNN's plans was fastest, and the plan itself, on disk: later runs start at once and give the same bits.

A file holds one choice, so that processes never write over one another's. Processes that share the folder choose one
after another: the first of a node's ranks times, the others find what it chose.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scaffe import private_files
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.cudnn.graphs import (
    Built,
    Key,
    empty_graph,
    frontend,
    make_graph,
    on_current_stream,
    plan_graph,
)

FOLDER = "cudnn_plans"
PATIENCE_SECONDS, NAP_SECONDS = 180.0, 0.01
"""How long a process waits for its turn, and between two looks; then it chooses by itself."""


@dataclass(frozen=True)
class Choice:
    """What was chosen: a plan's name, and the plan as cuDNN writes it, with the kernels that it compiled (empty where
    it cannot)."""

    plan: str
    content: bytes = b""


def find(name: str) -> Choice | None:
    """The choice kept under a name; None if there is none, or the file is damaged."""
    path = _file(name)
    found = private_files.read(path) if path else None
    if found is None:
        return None
    head, _, content = found.partition(b"\n")
    with suppress(ValueError):
        said: Any = json.loads(head)
        if isinstance(said, dict) and (said.get("name"), said.get("sha256")) == (name, _hash(content)):
            return Choice(str(said.get("plan")), content)
    return None


def keep(name: str, choice: Choice) -> None:
    """Save a choice. Does nothing if no folder can be written."""
    path = _file(name)
    if path is not None:
        head = {"name": name, "plan": choice.plan, "sha256": _hash(choice.content)}
        with suppress(OSError):
            private_files.write(path, json.dumps(head).encode() + b"\n" + choice.content)


@contextmanager
def turn() -> Iterator[None]:
    """Within it no other process chooses, unless it has waited too long or the file system has no locks."""
    folder, file = private_files.kept_folder(FOLDER), None
    with ExitStack() as stack:
        with suppress(OSError):
            file = stack.enter_context((folder / "lock").open("a")) if folder else None
        if file is not None:
            _wait_for(file)
        yield


def _wait_for(file: Any) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(NAP_SECONDS)
        except OSError:  # no locks here
            return
        else:
            return


def _file(name: str) -> Path | None:
    folder = private_files.kept_folder(FOLDER)
    return folder / _hash(name.encode())[:32] if folder else None


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


MOST_TRIED = 6  # plans that are timed
MOST_SECONDS = 1.0  # of building plans for one graph, once there is one: one compiled on the spot takes 0.3 to 2.7
N_TIMED = 3


def build_plans(graph: Any, wanted: str | None = None) -> dict[int, bytes]:
    """Build the plan named ``wanted``, or the first few that can be built: each as cuDNN writes it, by its index; empty
    bytes for one that it cannot write."""
    built: dict[int, bytes] = {}
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
        built[index] = _written(graph)
    return built


def _written(graph: Any) -> bytes:
    """The plan that was built last; empty where this cuDNN cannot write it."""
    try:
        return bytes(graph.serialize())
    except Exception:  # the Frontend's own
        return b""


@device.PerDevice
def build(key: Key) -> Built | None:
    """The graph of a key with its fastest plan, timed once on each machine; None if cuDNN has no plan."""
    name = _name(key)
    with turn():
        known = find(name)
        return (known and known.content and _restored(key, known.content)) or _built(key, name, known)


def _restored(key: Key, content: bytes) -> Built | None:
    """The plan that was kept; None where cuDNN does not take it."""
    try:
        graph = empty_graph(key, {"handle": on_current_stream()})
        graph.deserialize(on_current_stream(), list(content))  # it takes no bytes
        return Built(graph, None, graph.get_workspace_size(), key)
    except Exception:  # the Frontend's own
        return None


def _built(key: Key, name: str, known: Choice | None) -> Built | None:
    try:
        graph = make_graph(key, handle=on_current_stream())
        plan_graph(graph, key)
    except Exception as error:
        if "Not" in type(error).__name__ or isinstance(error, RuntimeError):
            return None
        raise
    candidates = (build_plans(graph, known.plan) if known else {}) or build_plans(graph)
    if not candidates:
        return None
    best = next(iter(candidates)) if len(candidates) == 1 else _fastest(key, graph, list(candidates))
    keep(name, Choice(graph.get_plan_name_at_index(best), candidates[best]))
    return Built(graph, best, graph.get_workspace_size_plan_at_index(best), key)


def fastest_way(key: Key, ways: Mapping[str, Callable[[], Any]]) -> str:
    """The name of the way that takes least time, timed once on each machine, among several that queue work with the
    same result; one of them runs the graph of ``key``."""
    name = f"{_name(key)}: {' or '.join(ways)}"
    with turn():
        known = find(name)
        if known is None or known.plan not in ways:
            known = Choice(min(ways, key=lambda way: _seconds(ways[way])))
            keep(name, known)
    return known.plan


def _name(key: Key) -> str:
    """What a choice is remembered under."""
    return f"{machine()}, {key}"


def machine() -> str:
    """The card, the driver and the libraries that choices depend on."""
    properties = device.describe(device.load().cuda.runtime.getDevice())
    driver = device.load().cuda.runtime.driverGetVersion()
    versions = f"cuDNN {frontend().backend_version()}, Frontend {frontend().__version__}, driver {driver}"
    return f"{properties['Name']}, {versions}"


def _fastest(key: Key, graph: Any, candidates: list[int]) -> int:
    """The place of the plan that takes least time on arrays of its own."""
    arrays, workspace = operands(key, max(map(graph.get_workspace_size_plan_at_index, candidates)))
    return min(candidates, key=lambda index: _seconds(
        lambda: Built(graph, index, 0, key).run(arrays, workspace)))


def operands(key: Key, n_workspace_bytes: int) -> tuple[dict[int, Any], Any]:
    """Arrays of zeros for a graph's tensors, by number, and a workspace: to time it with."""
    cupy = device.load()
    arrays = {number: cupy.zeros(shape, dtype) for number, (shape, dtype) in key.tensors.items()}
    return arrays, cupy.empty(max(n_workspace_bytes, 1), np.uint8)


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
