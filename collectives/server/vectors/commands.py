"""Commands of a coordinator on vectors that lie on shards (Dean et al., NIPS 2012, 4.2). The coordinator holds none.

Each shard carries a command out on its own interval of every vector; vectors are named, come into being when they are
first written, and stay on the shards. A command that reduces gives float64 numbers, block by block of the whole vector
(`shard.Blocks`); `merged` makes one answer of all blocks'. Pure definitions: `shard.VectorShard` runs them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.collectives.messages import message


@message
class Zero:
    """out ← 0."""

    out: str


@message
class Fill:
    """out ← 0, and the value of an interval there: (start, stop, value), in elements of the whole vector."""

    intervals: tuple[tuple[int, int, float], ...]
    out: str


@message
class Copy:
    """out ← x."""

    x: str
    out: str


@message
class Scale:
    """x ← factor · x."""

    factor: float
    x: str


@message
class Axpy:
    """y ← y + factor · x."""

    factor: float
    x: str
    y: str


@message
class Combine:
    """out ← Σ factors[i] · names[i], summed in float64 and in this order; out may be one of them."""

    factors: tuple[float, ...]
    names: tuple[str, ...]
    out: str


@message
class Multiply:
    """out ← x · y, element by element."""

    x: str
    y: str
    out: str


@message
class Clip:
    """out ← x, at least low and at most high."""

    x: str
    low: float
    high: float
    out: str


@message
class SteepestL1:
    """out ← the pseudo-gradient of f + Σ penaltyᵢ |xᵢ| at x, g the gradient of f (Andrew & Gao, ICML 2007, 3.1).

    It is the one-sided derivative towards where the sum falls; 0 where it falls neither way.
    """

    x: str
    g: str
    penalty: str
    out: str


@message
class Orthant:
    """out ← the signs of x, and where x is 0 those of -g: the orthant that a step from x explores."""

    x: str
    g: str
    out: str


@message
class KeepSigns:
    """out ← x where its sign is that of factor · like, else 0."""

    x: str
    like: str
    factor: float
    out: str


@message
class Dots:
    """The inner products of every row with every column, (rows, columns)."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]


@message
class Norm:
    """What a norm of x is made of, (1,): Σ xᵢ² (order 2), Σ weightsᵢ |xᵢ| (1; without weights Σ |xᵢ|), max |xᵢ| (0)."""

    x: str
    order: int = 2
    weights: str = ""


Command = (Zero | Fill | Copy | Scale | Axpy | Combine | Multiply | Clip | SteepestL1 | Orthant | KeepSigns | Dots
           | Norm)
REDUCING = (Dots, Norm)


def merged(command: Command, blocks: Sequence[np.ndarray]) -> np.ndarray:
    """One answer from those of all blocks, in the blocks' order. ``command``: one that reduces; ``blocks``: its answer
    in each block, float64."""
    total = blocks[0].copy()
    for block in blocks[1:]:
        if isinstance(command, Norm) and command.order == 0:
            np.maximum(total, block, out=total)
        else:
            total += block
    return total
