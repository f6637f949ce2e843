"""Checks the arguments of calls, and says in one line what is wrong with them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning.algorithm import Algorithm
from scaffe.collectives.runtime import memories

MAX_BYTES = (1 << 31) - 1
"""Of a message: MPI counts in 32 bits. Its other integers have no more."""


class Allocation(NamedTuple):
    """What `alloc` is asked for; `fault` says why it cannot be, and is empty where it can."""

    n_elems: int
    dtype: np.dtype[Any]
    memory: str
    fault: str = ""


def integer(name: str, value: Any) -> int:
    """Gives an argument as an int. Raises CommError: it is none; the line names it."""
    try:
        return operator.index(value)
    except TypeError:
        raise CommError(f"{name} must be an integer, not {value!r}") from None


def bounded(name: str, value: Any, least: int, most: int = MAX_BYTES) -> int:
    """Gives an argument as an int from `least` to `most`. Raises CommError: it is none; the line names it."""
    number = integer(name, value)
    if not least <= number <= most:
        raise CommError(f"{name} must be {f'{least} or more' if number < least else f'at most {most}'}, not {number}")
    return number


def place_in_split(color: Any, key: Any) -> tuple[int | None, int]:
    """Checks the arguments of `Communicator.split`."""
    return None if color is None else bounded("color", color, 0), bounded("key", key, -MAX_BYTES - 1)


def existing_rank(name: str, value: Any, n_ranks: int) -> int:
    """Gives an argument as a rank. Raises CommError: it is no integer or no rank below `n_ranks`; the line names it."""
    rank = integer(name, value)
    if not 0 <= rank < n_ranks:
        raise CommError(f"{name} must be a rank below {n_ranks}, not {rank}")
    return rank


def distinct_ranks(name: str, values: Sequence[Any], n_ranks: int) -> list[int]:
    """Gives an argument as ranks of which none comes twice. Raises CommError: one is no rank below `n_ranks` or comes
    twice; the line names the argument."""
    ranks = [existing_rank(name, value, n_ranks) for value in values]
    if len(set(ranks)) < len(ranks):
        raise CommError(f"{name} must differ from one another, not {ranks}")
    return ranks


def allocation(n_elems: Any, dtype: Any, memory: Any) -> Allocation:
    """Checks the arguments of `Communicator.alloc`."""
    try:
        asked = Allocation(integer("n_elems", n_elems), np.dtype(dtype), memories.named(memory).name)
        if asked.n_elems < 0:
            raise CommError(f"n_elems must be 0 or more, not {n_elems}")
        if asked.dtype.hasobject or asked.dtype.subdtype or not asked.dtype.itemsize:
            raise CommError(f"dtype must be of numbers, not {asked.dtype}")
        return asked
    except (CommError, TypeError) as error:
        return Allocation(0, np.dtype(np.uint8), "host", str(error))


@dataclass(frozen=True)
class CallSignature:
    """One collective call as every rank must make it: ranks compare its text before they send anything.

    Attributes:
        chunk_bytes: length of the longest message.
        leaves_one_per_node: an all-reduce whose result is left in one rank's array on each node.
    """

    collective: str
    algorithm: Algorithm
    n_elems: int
    dtype: str
    op: str = "sum"
    root: int = 0
    chunk_bytes: int = 0
    memory: str = "host"
    leaves_one_per_node: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Works out the hash once: signatures are looked up at every call."""
        object.__setattr__(self, "_hash", hash((
            self.collective, self.algorithm, self.n_elems, self.dtype, self.op, self.root, self.chunk_bytes,
            self.memory, self.leaves_one_per_node)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return (f"{self.collective} of {self.n_elems} x {self.dtype} in {self.memory} memory by {self.algorithm} "
                f"({self.op}, root {self.root}, chunks of {self.chunk_bytes} bytes"
                f"{', one result per node' if self.leaves_one_per_node else ''})")
