"""Parses the names of message patterns: `B`, `C`, `CB-8`, `CCB-8-node`, `R`, `H`, `D`, ... and any planner's shape.

Trees are named as in S-Caffe (Awan et al., PPoPP'17, section 5): one letter per level, lowest first, `C` for a chain
and `B` for a binomial tree; then the group size of every level but the last. `CB-8` is chains of 8 ranks and a binomial
tree over the chains' leaders. `CCB-8-8` is chains of 8 ranks, chains of 8 of their leaders, and a binomial tree over
the leaders of these. With the size `node` a group is the ranks of one node, and lower levels' groups stay within nodes
too; otherwise groups may span nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import registry

BY_NODE = 0
"""The group size that stands for `node`."""

_TREES = {"chain": "C", "binomial": "B"}
_TREE = re.compile(r"([BC]+)((?:-(?:\d+|node))*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed name.

    Attributes:
        name: the short form, such as `R` or `CB-8`.
        shape: `tree`, `ring`, ...: the second part of its planners' module names.
        levels: for trees, the letters B and C, lowest level first.
        group_ranks: for trees, ranks per group of each level but the last; BY_NODE groups by node.
    """

    name: str
    shape: str
    levels: str = ""
    group_ranks: tuple[int, ...] = ()


def parse(name: str) -> Pattern:
    """Parses a pattern's short or long name; upper and lower case are the same.

    Raises:
        CommError: an unknown name; the message lists the known ones.
    """
    lower = name.lower()
    for shape, names in registry.names().items():
        if lower in map(str.lower, names):
            return Pattern(names[0], shape)
    match = _TREE.fullmatch(_TREES.get(lower, name))
    if match is None:
        raise CommError(f"no algorithm is called {name!r}: known are {known()}")
    return _tree(name, match[1].upper(), match[2].lower().split("-")[1:])


def known() -> str:
    """The known names as text, for messages and help."""
    others = "".join(f", {names[0]} ({shape})" if names[0] != shape else f", {shape}"
                     for shape, names in registry.names().items())
    return f"B (binomial), C (chain), compositions such as CB-8, CC-node, CCB-8-8{others}, mpi"


def _tree(name: str, levels: str, sizes: list[str]) -> Pattern:
    if len(sizes) != len(levels) - 1:
        raise CommError(f"algorithm {name!r}: {len(levels)} levels need {len(levels) - 1} group sizes, "
                        f"got {len(sizes)} (as in C, CB-8, CCB-8-8)")
    if any(size != "node" and int(size) < 2 for size in sizes):
        raise CommError(f"algorithm {name!r}: a group needs at least 2 ranks")
    group_ranks = tuple(BY_NODE if size == "node" else int(size) for size in sizes)
    return Pattern("-".join([levels, *(size.lstrip("0") for size in sizes)]), registry.TREE, levels, group_ranks)
