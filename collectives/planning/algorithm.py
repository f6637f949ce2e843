"""Parses an algorithm's name: shared memory within nodes, a message pattern across, half precision on the wire.

A name is `[M|S][PATTERN][:WIRE]`, for example `M`, `C`, `SR` or `MCB-4:bf16`; or another library, `mpi` or `nccl`; or
`auto` or `own`, which leave the choice to the tuned table. With `M` and `S` the ranks of a node combine in shared
memory. After `M` PATTERN runs between one rank of each node; after `S` it runs once for each rank of a node, between
the ranks of the same number on all nodes, each on its share of the buffer (see `levels`). Without either, PATTERN runs
between all ranks (see `pattern`). WIRE is `fp16` or `bf16` (see `transport.wire`). `M2` is `M` that also gives each
result to the rank after the one that it is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.pattern import Pattern
from scaffe.collectives.planning.pattern import parse as parse_pattern

SELECTIONS = ("auto", "own")
"""Whatever is fastest; and the fastest of our own: MPI's calls busy-poll, and a helper thread that polls takes the core
of whoever computes (99 % of one, measured; ours take 0.3 to 1.5 %)."""
LIBRARIES = ("mpi", "nccl")
"""Others' own collectives; which of them these ranks have is found out at the first call."""
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
    """Parses an algorithm's name; an `Algorithm` is returned unchanged.

    Raises:
        CommError: `name` is not a string, or not the name of an algorithm.
    """
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
