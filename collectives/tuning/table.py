"""The tuned table: which algorithm and chunk was fastest for which collective, ranks, memory and length.

The file is JSON: {"version": 2, "entries": [{"collective", "memory", "n_ranks", "nodes", "source", "choices"}]} with
choices [{"max_bytes", "algorithm", "chunk_bytes"}] in ascending max_bytes, the last one null for all longer buffers.
`nodes` is a `Topology.shape` such as `8x2`, `source` says where the entry comes from. Beside the entries there may be
{"multiprocessors": n, "chunk_seconds": s}: how many a sum over other GPUs' memory should fill, and what a chunk of
device memory costs a rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from math import log2
from pathlib import Path
from typing import Any

from scaffe.atomic_files import write_whole
from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import COLLECTIVES, parse
from scaffe.collectives.topology import Topology
from scaffe.input_files import read_text_input

VERSION = 2
"""Of the file. Version 1 wrote `place` for `memory` and `cuda` for `device`."""
MEMORIES = ("shared", "host", "device")
"""The kinds of memory that a buffer lies in: a window that the node's ranks share, private host memory, a GPU's."""

DEFAULT_TABLE = Path(__file__).parent / "tables" / "default.json"


@dataclass(frozen=True, slots=True)
class TuningKey:
    """What an entry is for. ``memory``: the kind that the buffer lies in, one of MEMORIES; ``nodes``: how they lie on
    nodes: `8x2` is 8 nodes of 2 ranks, `2x4+1x3` two of 4 and one of 3."""

    collective: str
    memory: str
    n_ranks: int
    nodes: str

    def __post_init__(self) -> None:
        """Raises CommError on an unknown collective or memory, or nodes that do not hold n_ranks."""
        if self.collective not in COLLECTIVES or self.memory not in MEMORIES:
            raise CommError(f"a table's key needs one of {', '.join(COLLECTIVES)} and one of {', '.join(MEMORIES)}, "
                            f"not {self.collective!r} and {self.memory!r}")
        if sum(count * ranks for count, ranks in _nodes(self.nodes)) != self.n_ranks:
            raise CommError(f"nodes {self.nodes!r} do not hold {self.n_ranks} ranks")

    @classmethod
    def of(cls, collective: str, memory: str, topology: Topology) -> TuningKey:
        return cls(collective, memory, topology.n_ranks, topology.shape)

    def distance(self, other: TuningKey) -> float:
        """Returns how different two sets of ranks are: doublings between their numbers of nodes and of ranks per node,
        and 100 where only one of them is a single node."""
        (nodes, ranks), (other_nodes, other_ranks) = self._extent(), other._extent()
        networks_differ = (nodes == 1) != (other_nodes == 1)
        return abs(log2(nodes / other_nodes)) + abs(log2(ranks / other_ranks)) + 100 * networks_differ

    def _extent(self) -> tuple[int, float]:
        n_nodes = sum(count for count, _ in _nodes(self.nodes))
        return n_nodes, self.n_ranks / n_nodes


@dataclass(frozen=True, slots=True)
class Choice:
    """What to use for buffers up to a length. ``max_bytes``: the longest buffer that it is for; None: any."""

    max_bytes: int | None
    algorithm: str
    chunk_bytes: int

    def __post_init__(self) -> None:
        """Raises CommError on an unknown algorithm or lengths that cannot be."""
        algorithm = parse(self.algorithm)
        if algorithm.selection or algorithm.wire:
            raise CommError(f"a choice needs a library's algorithm or one of ours, without a wire, not "
                            f"{self.algorithm!r}")
        if self.chunk_bytes < 1 or (self.max_bytes is not None and self.max_bytes < 0):
            raise CommError(f"a choice needs chunk_bytes of 1 or more and max_bytes of 0 or more, not "
                            f"{self.chunk_bytes} and {self.max_bytes}")


@dataclass(frozen=True, slots=True)
class TuningEntry:
    """The choices for one key. ``choices``: by ascending max_bytes, which is None in the last one."""

    key: TuningKey
    choices: tuple[Choice, ...]
    source: str = ""

    def __post_init__(self) -> None:
        """Raises CommError on choices out of order, without an open end, or with NCCL for host memory."""
        limits = [choice.max_bytes for choice in self.choices]
        bounded = [limit for limit in limits[:-1] if limit is not None]
        if self.key.memory != "device" and any(choice.algorithm.lower() == "nccl" for choice in self.choices):
            raise CommError(f"choices of {self.key}: nccl is for device memory")
        if not limits or limits[-1] is not None or len(bounded) != len(limits) - 1 or bounded != sorted(set(bounded)):
            raise CommError(f"choices of {self.key} need ascending max_bytes and null at the end, not {limits}")

    def choose(self, n_bytes: int) -> Choice:
        return next(choice for choice in self.choices if choice.max_bytes is None or n_bytes <= choice.max_bytes)

    @property
    def bandwidth_bytes(self) -> int:
        """The length beyond which the last choice holds: there bandwidth counts, not latency. 0 with one choice."""
        return (self.choices[-2].max_bytes or 0) if len(self.choices) > 1 else 0


class TuningTable:
    """Entries by key. Immutable.

    Attributes:
        multiprocessors: how many a sum over other GPUs' memory should fill; None where that was not measured.
        chunk_seconds: what a chunk of device memory costs a rank, whatever its length; None likewise.
    """

    def __init__(self, entries: Iterable[TuningEntry], multiprocessors: int | None = None,
                 chunk_seconds: float | None = None) -> None:
        """Args:
            entries: later ones replace earlier ones of the same key.

        Raises:
            CommError: multiprocessors below 1, or chunk_seconds not above 0.
        """
        if chunk_seconds is not None and not (type(chunk_seconds) is float and chunk_seconds > 0):
            raise CommError(f"chunk_seconds must be above 0, not {chunk_seconds!r}")
        self.chunk_seconds = chunk_seconds
        if multiprocessors is not None and (type(multiprocessors) is not int or multiprocessors < 1):
            raise CommError(f"multiprocessors must be 1 or more, not {multiprocessors!r}")
        self.multiprocessors = multiprocessors
        self._entries: Mapping[TuningKey, TuningEntry] = {entry.key: entry for entry in entries}

    @cached_property
    def entries(self) -> tuple[TuningEntry, ...]:
        return tuple(self._entries.values())

    def merged(self, other: TuningTable) -> TuningTable:
        """Returns a table with the entries of both; where keys are equal, `other`'s."""
        return TuningTable([*self.entries, *other.entries], other.multiprocessors or self.multiprocessors,
                           other.chunk_seconds or self.chunk_seconds)

    def nearest(self, key: TuningKey) -> TuningEntry | None:
        """Finds the entry of a key, or else that of the most similar ranks for the same collective and memory. Returns
        None where the table has nothing for this collective and memory."""
        if key in self._entries:
            return self._entries[key]
        alike = [entry for entry in self.entries
                 if (entry.key.collective, entry.key.memory) == (key.collective, key.memory)]
        return min(alike, key=lambda entry: key.distance(entry.key), default=None)

    def choose(self, key: TuningKey, n_bytes: int) -> Choice | None:
        entry = self.nearest(key)
        return None if entry is None else entry.choose(n_bytes)

    def write(self, path: Path) -> None:
        """Writes the table as JSON. Raises CommError where it cannot be written."""
        content: dict[str, Any] = {"version": VERSION, "entries": [
            {**asdict(entry.key), "source": entry.source, "choices": [asdict(choice) for choice in entry.choices]}
            for entry in self.entries]}
        content |= {name: value for name in ("multiprocessors", "chunk_seconds")
                    if (value := getattr(self, name)) is not None}
        write_whole(path, (json.dumps(content, indent=1) + "\n").encode(), CommError)

    @classmethod
    def read(cls, path: Path) -> TuningTable:
        """Reads a table. Raises CommError, which names file and entry, on what is missing or wrong."""
        try:
            content = json.loads(read_text_input(path))
            if not isinstance(content, dict) or content.get("version") != VERSION:
                raise CommError(_other_version(content))
            return cls((_entry(index, value) for index, value in enumerate(content["entries"])),
                       content.get("multiprocessors"), content.get("chunk_seconds"))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else reason
            raise CommError(f"table {path}: {str(reason)[:500]}") from None


def _other_version(content: Any) -> str:
    if isinstance(content, dict) and content.get("version") == 1:
        return f"expected version {VERSION}, got the older version 1: run `tune` again, into a new file"
    return f"expected an object with version {VERSION}"


def _nodes(text: str) -> list[tuple[int, int]]:
    """(how many nodes, of how many ranks) of `2x4+1x3`. Raises CommError on another form."""
    try:
        pairs = [tuple(map(int, part.split("x"))) for part in text.split("+")]
    except (ValueError, AttributeError):
        pairs = []
    if not pairs or any(len(pair) != 2 or min(pair) < 1 for pair in pairs):
        raise CommError(f"nodes must be written as 8x2 or 2x4+1x3 (nodes x ranks), not {text!r}")
    return [(pair[0], pair[1]) for pair in pairs]


def _entry(index: int, value: Any) -> TuningEntry:
    try:
        key = TuningKey(value["collective"], value["memory"], value["n_ranks"], value["nodes"])
        choices = tuple(Choice(item["max_bytes"], item["algorithm"], item["chunk_bytes"]) for item in value["choices"])
        return TuningEntry(key, choices, value.get("source", ""))
    except (TypeError, AttributeError) as error:
        raise CommError(f"entry {index}: {error}") from None
    except KeyError as error:
        raise CommError(f"entry {index}: {error} is missing") from None
    except CommError as error:
        raise CommError(f"entry {index}: {error}") from None
