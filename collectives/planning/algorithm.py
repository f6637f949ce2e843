"""Algorithms by name (shared memory within nodes, a message pattern across, half precision on the wire), and the
registry of planners."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import dataclass
from functools import cache, lru_cache

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import algorithms
from scaffe.collectives.planning.call import Planner

COLLECTIVES = ("reduce", "bcast", "allreduce", "reduce_scatter", "allgather")
TREE = "tree"
"""The shape whose names are compositions (see `pattern`); every other shape has one name, and aliases."""


@cache
def registry() -> dict[tuple[str, str], Planner]:
    """Imports all planners. Returns (collective, shape) -> planner, in alphabetical order of shapes, then of
    collectives."""
    modules = (importlib.import_module(f"{algorithms.__name__}.{module.name}")
               for module in pkgutil.iter_modules(algorithms.__path__))
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Planner)]
    found.sort(key=lambda each: (each.shape, each.collective))
    return {(each.collective, each.shape): each for each in found}


@cache
def shape_names() -> dict[str, tuple[str, ...]]:
    """The names of each shape, trees excepted. Returns shape -> its names: those that its planners state, the short one
    first, then the shape itself. Raises CommError: two shapes share a name."""
    found: dict[str, dict[str, None]] = {}
    for (_, shape), each in registry().items():
        if shape != TREE:
            found.setdefault(shape, {}).update(dict.fromkeys(each.names))
    owner: dict[str, str] = {}
    for shape, given in found.items():
        given[shape] = None
        for name in given:
            if owner.setdefault(name.lower(), shape) != shape:
                raise CommError(f"planners {owner[name.lower()]} and {shape} both have the name {name!r}")
    return {shape: tuple(given) for shape, given in found.items()}


def forget() -> None:
    """Clears the cache, so that the next call finds planner files added since."""
    registry.cache_clear()
    shape_names.cache_clear()


BY_NODE = 0
"""The group size that stands for `node`."""

_TREES = {"chain": "C", "binomial": "B"}
_TREE = re.compile(r"([BC]+)((?:-(?:\d+|node))*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed name.

    Attributes:
        name: the short form, such as `R` or `CB-8`.
        shape: `tree`, `ring`, ...: that of its planners.
        levels: for trees, the letters B and C, lowest level first.
        group_ranks: for trees, ranks per group of each level but the last; BY_NODE groups by node.
    """

    name: str
    shape: str
    levels: str = ""
    group_ranks: tuple[int, ...] = ()


def parse_pattern(name: str) -> Pattern:
    """Parses a pattern's short or long name; upper and lower case are the same. Raises CommError: an unknown name; the
    message lists the known ones."""
    lower = name.lower()
    for shape, names in shape_names().items():
        if lower in map(str.lower, names):
            return Pattern(names[0], shape)
    match = _TREE.fullmatch(_TREES.get(lower, name))
    if match is None:
        raise CommError(f"no algorithm is called {name!r}: known are {known_patterns()}")
    return _tree(name, match[1].upper(), match[2].lower().split("-")[1:])


def known_patterns() -> str:
    """The known names as text, for messages and help."""
    others = "".join(f", {names[0]} ({shape})" if names[0] != shape else f", {shape}"
                     for shape, names in shape_names().items())
    return f"B (binomial), C (chain), compositions such as CB-8, CC-node, CCB-8-8{others}, mpi"


def _tree(name: str, levels: str, sizes: list[str]) -> Pattern:
    if len(sizes) != len(levels) - 1:
        raise CommError(f"algorithm {name!r}: {len(levels)} levels need {len(levels) - 1} group sizes, "
                        f"got {len(sizes)} (as in C, CB-8, CCB-8-8)")
    if any(size != "node" and int(size) < 2 for size in sizes):
        raise CommError(f"algorithm {name!r}: a group needs at least 2 ranks")
    group_ranks = tuple(BY_NODE if size == "node" else int(size) for size in sizes)
    return Pattern("-".join([levels, *(size.lstrip("0") for size in sizes)]), TREE, levels, group_ranks)


SELECTIONS = ("auto", "own")
"""The fastest; and the fastest of our own: MPI's calls busy-poll, and a helper thread that polls takes 99 % of a core
from computing (measured; ours take 0.3 to 1.5 %)."""
LIBRARIES = ("mpi", "nccl")
"""Other libraries' collectives. Which of them these ranks have is found out at the first call."""
WIRES = ("fp16", "bf16")
SHARED = "M"
DOUBLED = "M2"
SPLIT = "S"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How one collective is carried out.

    Attributes:
        selection: `auto` or `own` if the tuned table is to choose; else empty.
        library: `mpi` or `nccl` if that library does it; else empty.
        is_shared: whether the ranks of a node combine in shared memory.
        is_split: whether, if so, all ranks of a node go across with a share each, rather than one with the whole.
        pattern: the pattern of our own messages, across nodes or between all ranks; None if there are none.
        wire: `fp16` or `bf16` if messages travel in half precision; else empty.
        is_doubled: whether, if shared, the next rank gets each result too.
    """

    selection: str = ""
    library: str = ""
    is_shared: bool = False
    pattern: Pattern | None = None
    wire: str = ""
    is_split: bool = False
    is_doubled: bool = False

    def __str__(self) -> str:
        """The shortest name that parses to this."""
        level = (SPLIT if self.is_split else DOUBLED if self.is_doubled else SHARED) if self.is_shared else ""
        ours = level + ("" if self.pattern is None else self.pattern.name)
        return (self.selection or self.library or ours) + (f":{self.wire}" if self.wire else "")


def parse(name: str | Algorithm) -> Algorithm:
    """Parses an algorithm's name; an `Algorithm` is returned unchanged. Raises CommError: `name` is not a string, or
    not the name of an algorithm."""
    if isinstance(name, Algorithm):
        return name
    if not isinstance(name, str):
        raise CommError(f"algorithm must be a name such as auto, mpi or CB-8, not {name!r}")
    return _parse(name)


@lru_cache(maxsize=1024)
def _parse(text: str) -> Algorithm:
    name, colon, wire = text.partition(":")
    if colon and wire not in WIRES:
        raise CommError(f"algorithm {text!r}: a wire is {' or '.join(WIRES)}, not {wire!r}")
    if name in SELECTIONS:
        return Algorithm(selection=name, wire=wire)
    if name.lower() in LIBRARIES:
        return Algorithm(library=name.lower(), wire=wire)
    if name in (SHARED, DOUBLED):
        return Algorithm(is_shared=True, wire=wire, is_doubled=name == DOUBLED)
    try:
        return Algorithm(pattern=parse_pattern(name), wire=wire)
    except CommError:
        if not name.startswith((SHARED, SPLIT)):
            raise
    return Algorithm(is_shared=True, pattern=parse_pattern(name[1:]), wire=wire, is_split=name.startswith(SPLIT))


def is_divisible(algorithm: str, n_ranks: int) -> bool:
    """Whether reducing the parts of an array one by one gives the same bits as reducing all of it at once.

    On two ranks they do whoever adds, since two numbers have one sum. On more they do where the algorithm is one of
    ours that says so, and not where ``auto`` may take another one for another length.

    Args:
        algorithm: a name, as `parse` takes it.
        n_ranks: that reduce.

    Raises:
        CommError: nothing is called that.
    """
    asked = parse(algorithm)
    if n_ranks <= 2 and not asked.wire:
        return True
    if asked.selection or asked.library or asked.is_split:
        return False
    if asked.pattern is None:
        return True
    planner = registry().get(("reduce", asked.pattern.shape))
    return planner is not None and not planner.sum_depends_on
