"""Names of algorithms: `B`, `C`, `CB-8`, `CCB-8-node`, `R`, `H`, `D`, `P`, `T`, `mpi`.

Trees are written as in S-Caffe (Awan et al., PPoPP'17, section 5): one letter a level from the lowest up, `C` a chain
and `B` a binomial tree, then the group size of every level but the last: `CB-8` is chains of 8 ranks under a binomial
tree over their leaders, `CCB-8-8` chains of 8, chains of 8 of their leaders, a binomial tree over what is left. A size
of `node` makes the ranks of one node a group (and keeps the groups below it within nodes; other groups may span nodes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from scaffe.collectives.errors import CommError

BY_NODE = 0
"""The group size that stands for `node`."""

SHAPES = {"R": "ring", "H": "halving", "D": "doubling", "P": "pairwise", "T": "twotree", "mpi": "mpi"}
"""Short name of what is not one tree -> its shape, the second part of its module's name."""

_ALIASES = {"chain": "C", "binomial": "B", "rabenseifner": "H", "bruck": "D"}
_ALIASES |= {shape: name for name, shape in SHAPES.items()}
_TREE = re.compile(r"([BC]+)((?:-(?:\d+|node))*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A parsed name. `shape` is `tree`, `ring`, ..., `mpi`; `levels` (trees only) holds B and C from the lowest up;
    `group_ranks` one entry fewer, BY_NODE for groups by node."""

    name: str
    shape: str
    levels: str = ""
    group_ranks: tuple[int, ...] = ()


@lru_cache(maxsize=1024)
def parse(name: str) -> Algorithm:
    """The algorithm that `name` (any case, short or long) stands for. Raises CommError with the known names."""
    lower = name.lower()
    short = _ALIASES.get(lower) or next((known for known in SHAPES if known.lower() == lower), name)
    if short in SHAPES:
        return Algorithm(short, SHAPES[short])
    match = _TREE.fullmatch(short)
    if match is None:
        raise CommError(f"no algorithm is called {name!r}: known are {known()}")
    return _tree(name, match[1].upper(), match[2].lower().split("-")[1:])


def check(name: str) -> None:
    """Raise CommError unless `name` is known, with or without `M`, shared memory below it (see `shared_levels`)."""
    if name != "M":
        parse(name[1:] if name.startswith("M") and name.lower() != "mpi" else name)


def known() -> str:
    """The names there are, for messages and help texts."""
    others = ", ".join(f"{short} ({shape})" for short, shape in SHAPES.items() if short != shape)
    return f"B (binomial), C (chain), compositions such as CB-8, CC-node, CCB-8-8, {others}, mpi"


def _tree(name: str, levels: str, sizes: list[str]) -> Algorithm:
    if len(sizes) != len(levels) - 1:
        raise CommError(f"algorithm {name!r}: {len(levels)} levels need {len(levels) - 1} group sizes, "
                        f"got {len(sizes)} (as in C, CB-8, CCB-8-8)")
    if any(size != "node" and int(size) < 2 for size in sizes):
        raise CommError(f"algorithm {name!r}: a group needs at least 2 ranks")
    group_ranks = tuple(BY_NODE if size == "node" else int(size) for size in sizes)
    return Algorithm("-".join([levels, *(size.lstrip("0") for size in sizes)]), "tree", levels, group_ranks)
