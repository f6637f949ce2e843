"""Which of cuDNN's plans was chosen, and the plan itself, on disk: later runs start at once and give the same bits.

A file holds one choice, so that processes never write over one another's. Processes that share the folder choose one
after another: the first of a node's ranks times, the others find what it chose.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scaffe import private_files
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import SMALL_BYTES
from scaffe.layers.kernels.cuda.cudnn.graphs import (
    Built,
    Key,
    empty_graph,
    frontend,
    make_graph,
    on_current_stream,
    plan_graph,
)
from scaffe.layers.kernels.cuda.cudnn.timing import SLOWER, choose, operands, seconds_of

FOLDER = "cudnn_plans"
PATIENCE_SECONDS, NAP_SECONDS = 180.0, 0.01
"""How long a process waits for its turn, and between two looks; then it chooses by itself."""


@dataclass(frozen=True)
class Choice:
    """What was chosen: a plan's name, the plan as cuDNN writes it, with the kernels that it compiled (empty where it
    cannot), and how often the batch was halved for it."""

    plan: str
    content: bytes = b""
    n_halved: int = 0


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
            return Choice(str(said.get("plan")), content, int(said.get("halved", 0)))
    return None


def keep(name: str, choice: Choice) -> None:
    """Save a choice. Does nothing if no folder can be written."""
    path = _file(name)
    if path is not None:
        head = {"name": name, "plan": choice.plan, "halved": choice.n_halved, "sha256": _hash(choice.content)}
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
RULE = f"least workspace within {SLOWER}"


class Candidate(NamedTuple):
    """A plan that was built: its name, and the plan as cuDNN writes it."""

    built: Built
    name: str
    content: bytes


def build_plans(graph: Any, wanted: str | None = None) -> dict[int, bytes]:
    """Build the plan named ``wanted``, or the first few that can be built: each as cuDNN writes it, by its index; empty
    bytes for one that it cannot write. One after another: the Frontend holds Python's lock while it builds."""
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
def build(key: Key, *halves: Key) -> Built | None:
    """The graph of a key with the plan that ``choose`` takes, timed once on each machine; None if cuDNN has no plan.

    Args:
        halves: the same operations on a half of the batch, on a quarter, ..., whose plans are timed too where those of
            the batch work in more than SMALL_BYTES: run part after part, they work in less (micro-batches: Oyama et
            al., CLUSTER 2018).
    """
    keys, name = (key, *halves), _name(key)
    with turn():
        known = find(name)
        return (known and known.n_halved < len(keys) and _again(keys[known.n_halved], known, name)) or _new(keys, name)


def _again(key: Key, known: Choice, name: str) -> Built | None:
    """The plan that was kept, or built once more by its name; None where cuDNN does not take it."""
    restored = _restored(key, known) if known.content else None
    found = _candidates(key, known.n_halved, known.plan) if restored is None else []
    if found:
        keep(name, Choice(found[0].name, found[0].content, known.n_halved))
    return found[0].built if found else restored


def _restored(key: Key, known: Choice) -> Built | None:
    try:
        graph = empty_graph(key, {"handle": on_current_stream()})
        graph.deserialize(on_current_stream(), list(known.content))  # it takes no bytes
        return Built(graph, None, graph.get_workspace_size(), key, 2**known.n_halved)
    except Exception:  # the Frontend's own
        return None


def _new(keys: Sequence[Key], name: str) -> Built | None:
    """The chosen plan for the batch, or for micro-batches."""
    found, seconds = list[Candidate](), list[float]()
    for n_halved, key in enumerate(keys):
        more = _candidates(key, n_halved)
        seconds += [taken * 2**n_halved for taken in _timed(key, more, is_alone=not found)]
        found += more
        if not found:
            return None
        best = found[choose(seconds, [each.built.n_workspace_bytes for each in found])]
        if best.built.n_workspace_bytes <= SMALL_BYTES:
            break
    keep(name, Choice(best.name, best.content, best.built.n_parts.bit_length() - 1))
    return best.built


def _candidates(key: Key, n_halved: int, wanted: str | None = None) -> list[Candidate]:
    """The plans of a key that could be built, or the one of that name."""
    try:
        graph = make_graph(key, handle=on_current_stream())
        plan_graph(graph, key)
    except Exception as error:
        if "Not" in type(error).__name__ or isinstance(error, RuntimeError):
            return []
        raise
    return [Candidate(Built(graph, index, graph.get_workspace_size_plan_at_index(index), key, 2**n_halved),
                      graph.get_plan_name_at_index(index), content)
            for index, content in build_plans(graph, wanted).items()]


def _timed(key: Key, found: Sequence[Candidate], is_alone: bool) -> list[float]:
    """Seconds of each plan on arrays of its own; not measured where there is only one, and it is small."""
    most = max((each.built.n_workspace_bytes for each in found), default=0)
    if len(found) < 2 and is_alone and most <= SMALL_BYTES:
        return [0.0] * len(found)
    arrays, workspace = operands(key, most)
    return [seconds_of(lambda built=each.built: built.run(arrays, workspace)) for each in found]  # type: ignore[misc]


class Way(NamedTuple):
    """A way to a result: what queues its work, and the bytes that it works in."""

    run: Callable[[], Any]
    n_workspace_bytes: int


def chosen_way(key: Key, ways: Mapping[str, Way]) -> str:
    """The name of the way that ``choose`` takes, timed once on each machine, among several with the same result; one of
    them runs the graph of ``key``."""
    name = f"{_name(key)}: {' or '.join(ways)}"
    with turn():
        known = find(name)
        if known is None or known.plan not in ways:
            seconds = [seconds_of(way.run) for way in ways.values()]
            best = choose(seconds, [way.n_workspace_bytes for way in ways.values()])
            known = Choice(list(ways)[best])
            keep(name, known)
    return known.plan


def _name(key: Key) -> str:
    """What a choice is remembered under."""
    return f"{machine()}, {key}"


def machine() -> str:
    """The card, the driver, the libraries and the rule that choices depend on."""
    properties = device.describe(device.load().cuda.runtime.getDevice())
    driver = device.load().cuda.runtime.driverGetVersion()
    versions = f"cuDNN {frontend().backend_version()}, Frontend {frontend().__version__}, driver {driver}"
    return f"{properties['Name']}, {versions}, {RULE}"
