"""Which algorithm and chunk to use: a table of what was fastest where, and how the nearest entry is found. Pure.

The file is JSON: {"version": 1, "entries": [{"collective", "place", "n_ranks", "nodes", "source", "choices"}]} with
choices [{"max_bytes", "algorithm", "chunk_bytes"}] in ascending max_bytes, the last one null for all longer buffers.
`nodes` is a `Topology.shape` such as `8x2`, `source` says where the entry comes from.
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
from scaffe.collectives.planning.algorithm import parse
from scaffe.collectives.planning.planners import short_names
from scaffe.collectives.planning.registry import COLLECTIVES
from scaffe.collectives.planning.requirements import spans_nodes
from scaffe.collectives.topology import Topology
from scaffe.input_files import read_text_input

PLACES = ("host", "shared", "cuda")
"""Where a buffer lies: private host memory, the communicator's shared windows, a GPU."""

DEFAULT_TABLE = Path(__file__).parent / "tables" / "default.json"


@dataclass(frozen=True, slots=True)
class Key:
    """What an entry is for: a collective on buffers at a place, on `n_ranks` ranks over `nodes` (`8x2`, `2x4+1x3`)."""

    collective: str
    place: str
    n_ranks: int
    nodes: str

    def __post_init__(self) -> None:
        """Raises CommError on an unknown collective or place, or nodes that do not hold n_ranks."""
        if self.collective not in COLLECTIVES or self.place not in PLACES:
            raise CommError(f"a table's key needs one of {', '.join(COLLECTIVES)} and one of {', '.join(PLACES)}, "
                            f"not {self.collective!r} and {self.place!r}")
        if sum(count * ranks for count, ranks in _nodes(self.nodes)) != self.n_ranks:
            raise CommError(f"nodes {self.nodes!r} do not hold {self.n_ranks} ranks")

    @classmethod
    def of(cls, collective: str, place: str, topology: Topology) -> Key:
        """The key of a call on `topology`."""
        return cls(collective, place, topology.n_ranks, topology.shape)

    def distance(self, other: Key) -> float:
        """How different two sets of ranks are: doublings of node count and of ranks per node, and one node or more."""
        (nodes, ranks), (other_nodes, other_ranks) = self._extent(), other._extent()
        networks_differ = (nodes == 1) != (other_nodes == 1)
        return abs(log2(nodes / other_nodes)) + abs(log2(ranks / other_ranks)) + 100 * networks_differ

    def _extent(self) -> tuple[int, float]:
        n_nodes = sum(count for count, _ in _nodes(self.nodes))
        return n_nodes, self.n_ranks / n_nodes


@dataclass(frozen=True, slots=True)
class Choice:
    """Up to `max_bytes` (None: any length), `algorithm` in chunks of `chunk_bytes`."""

    max_bytes: int | None
    algorithm: str
    chunk_bytes: int

    def __post_init__(self) -> None:
        """Raises CommError on an unknown algorithm or lengths that cannot be."""
        algorithm = parse(self.algorithm)
        if algorithm.selection or algorithm.wire or algorithm.library == "nccl":
            raise CommError(f"a choice needs MPI's algorithm or one of ours, without a wire, not {self.algorithm!r}")
        if self.chunk_bytes < 1 or (self.max_bytes is not None and self.max_bytes < 0):
            raise CommError(f"a choice needs chunk_bytes of 1 or more and max_bytes of 0 or more, not "
                            f"{self.chunk_bytes} and {self.max_bytes}")


@dataclass(frozen=True, slots=True)
class Entry:
    """Choices for one key, in ascending `max_bytes`; the last one has None. `source`: where they come from."""

    key: Key
    choices: tuple[Choice, ...]
    source: str = ""

    def __post_init__(self) -> None:
        """Raises CommError on choices out of order or without an open end."""
        limits = [choice.max_bytes for choice in self.choices]
        bounded = [limit for limit in limits[:-1] if limit is not None]
        if not limits or limits[-1] is not None or len(bounded) != len(limits) - 1 or bounded != sorted(set(bounded)):
            raise CommError(f"choices of {self.key} need ascending max_bytes and null at the end, not {limits}")

    def choose(self, n_bytes: int) -> Choice:
        """The choice for a buffer of n_bytes."""
        return next(choice for choice in self.choices if choice.max_bytes is None or n_bytes <= choice.max_bytes)

    @property
    def bandwidth_bytes(self) -> int:
        """The length beyond which the choice for the longest buffers holds: there bytes count, not start-ups."""
        return (self.choices[-2].max_bytes or 0) if len(self.choices) > 1 else 0


class Table:
    """Entries by key. Immutable; `merged` gives a new one."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        """Later entries replace earlier ones of the same key."""
        self._entries: Mapping[Key, Entry] = {entry.key: entry for entry in entries}

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order of their keys' first appearance."""
        return tuple(self._entries.values())

    def merged(self, other: Table) -> Table:
        """This table with `other`'s entries added or put in place of this one's."""
        return Table([*self.entries, *other.entries])

    def nearest(self, key: Key) -> Entry | None:
        """The entry of `key`, or else of the most similar ranks for the same collective and place; None without."""
        if key in self._entries:
            return self._entries[key]
        alike = [entry for entry in self.entries
                 if (entry.key.collective, entry.key.place) == (key.collective, key.place)]
        return min(alike, key=lambda entry: key.distance(entry.key), default=None)

    def choose(self, key: Key, n_bytes: int) -> Choice | None:
        """What to use for `key` and n_bytes; None where the table has nothing for this collective and place."""
        entry = self.nearest(key)
        return None if entry is None else entry.choose(n_bytes)

    def write(self, path: Path) -> None:
        """Write the table as JSON. Raises CommError where it cannot be written."""
        content = {"version": 1, "entries": [
            {**asdict(entry.key), "source": entry.source, "choices": [asdict(choice) for choice in entry.choices]}
            for entry in self.entries]}
        write_whole(path, (json.dumps(content, indent=1) + "\n").encode(), CommError)

    @classmethod
    def read(cls, path: Path) -> Table:
        """The table in a JSON file. Raises CommError, naming file and entry, on what is missing or wrong."""
        try:
            content = json.loads(read_text_input(path))
            if not isinstance(content, dict) or content.get("version") != 1:
                raise CommError("expected an object with version 1")
            return cls(_entry(index, value) for index, value in enumerate(content["entries"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise CommError(f"table {path}: {reason}") from None


def candidates(collective: str, topology: Topology) -> list[str]:
    """Algorithms worth measuring for `collective` on `topology`, the library's own first.

    `M...` has the node's shared memory as its lowest level (see `planning.algorithm`).
    Raises CommError on an unknown collective.
    """
    if collective not in COLLECTIVES:
        raise CommError(f"no collective is called {collective!r}: known are {', '.join(COLLECTIVES)}")
    shared = topology.n_nodes < topology.n_ranks
    spans = topology.n_nodes > 1
    flat = short_names(collective) if topology.n_ranks > 1 else []
    above = [f"M{name}" for name in flat] if spans_nodes(collective, topology) else []
    found = ["mpi", *(["M"] if shared and not spans else []), *(above if shared and spans else []), *flat]
    sizes = (["node"] if shared and spans else []) + [str(ranks) for ranks in (4, 8, 16) if ranks < topology.n_ranks]
    return found + [f"{levels}-{size}" for levels in ("CB", "CC") for size in sizes if "C" in flat]


def _nodes(text: str) -> list[tuple[int, int]]:
    """(how many nodes, of how many ranks) of `2x4+1x3`. Raises CommError on another form."""
    try:
        pairs = [tuple(map(int, part.split("x"))) for part in text.split("+")]
    except (ValueError, AttributeError):
        pairs = []
    if not pairs or any(len(pair) != 2 or min(pair) < 1 for pair in pairs):
        raise CommError(f"nodes must be written as 8x2 or 2x4+1x3 (nodes x ranks), not {text!r}")
    return [(pair[0], pair[1]) for pair in pairs]


def _entry(index: int, value: Any) -> Entry:
    try:
        key = Key(value["collective"], value["place"], value["n_ranks"], value["nodes"])
        choices = tuple(Choice(item["max_bytes"], item["algorithm"], item["chunk_bytes"]) for item in value["choices"])
        return Entry(key, choices, value.get("source", ""))
    except (TypeError, AttributeError) as error:
        raise CommError(f"entry {index}: {error}") from None
    except KeyError as error:
        raise CommError(f"entry {index}: {error} is missing") from None
    except CommError as error:
        raise CommError(f"entry {index}: {error}") from None
