"""Which elements of a vector lie on which shard, and in which blocks sums are made. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod

import numpy as np

from scaffe.collectives.errors import CommError
from scaffe.collectives.planning import plan
from scaffe.collectives.server.vectors import commands as c

STEADY_BLOCKS = 64
"""Blocks where sums must not depend on the number of shards: shards hold whole blocks, so there are at most as many."""


@dataclass(frozen=True)
class Blocks:
    """A vector cut into blocks, and the blocks shared out.

    A reduction sums every block by itself, then the blocks in their order: with as many blocks its bits are the same on
    any number of shards.

    Attributes:
        n_blocks: how many blocks; 0 for one a shard.
    """

    n_elems: int
    n_shards: int
    n_blocks: int = 0

    def of(self, shard: int) -> list[slice]:
        """A shard's blocks, in elements of the vector; empty ones left out."""
        n_blocks = self.n_blocks or self.n_shards
        own = plan.part(shard, self.n_shards, n_blocks)
        blocks = [plan.part(block, n_blocks, self.n_elems) for block in range(own.start, own.stop)]
        return [block for block in blocks if block.start < block.stop]

    def interval(self, shard: int) -> slice:
        blocks = self.of(shard)
        return slice(blocks[0].start, blocks[-1].stop) if blocks else slice(0, 0)


CHUNK_ELEMS = 8192
"""Sums are made of chunks that the cache holds, in their order from a block's beginning."""


class VectorShard:
    """One shard's interval of every vector. ``blocks``: the shard's blocks of the whole vector, one after another
    (`Blocks.of`). ``vectors``: by name, (interval's length,)."""

    def __init__(self, blocks: Sequence[slice], dtype: np.dtype) -> None:
        self.interval = slice(blocks[0].start, blocks[-1].stop) if blocks else slice(0, 0)
        self._blocks = [slice(b.start - self.interval.start, b.stop - self.interval.start) for b in blocks]
        self._dtype = np.dtype(dtype)
        self.vectors: dict[str, np.ndarray] = {}

    def run(self, command: c.Command) -> list[np.ndarray]:
        """Carry a command out. Returns the answers of this shard's blocks, float64, if it reduces; else nothing. Raises
        CommError: it names a vector that nothing has written."""
        found: list[np.ndarray] | None = self._run(command)
        return found or []

    def out(self, name: str) -> np.ndarray:
        """The vector of that name, to be written whole; made if there is none."""
        if name not in self.vectors:
            self.vectors[name] = np.zeros(self.interval.stop - self.interval.start, self._dtype)
        return self.vectors[name]

    def _of(self, name: str) -> np.ndarray:
        if name not in self.vectors:
            raise CommError(f"a shard has no vector {name!r}; it has {', '.join(sorted(self.vectors)) or 'none'}")
        return self.vectors[name]

    @singledispatchmethod
    def _run(self, command: object) -> list[np.ndarray] | None:
        raise CommError(f"a shard knows no command {type(command).__name__}")

    @_run.register
    def _(self, command: c.Zero) -> None:
        self.out(command.out)[:] = 0

    @_run.register
    def _(self, command: c.Fill) -> None:
        out = self.out(command.out)
        out[:] = 0
        for start, stop, value in command.intervals:
            first = self.interval.start
            out[max(start - first, 0):max(stop - first, 0)] = value

    @_run.register
    def _(self, command: c.Copy) -> None:
        self.out(command.out)[:] = self._of(command.x)

    @_run.register
    def _(self, command: c.Scale) -> None:
        x = self._of(command.x)
        x *= x.dtype.type(command.factor)

    @_run.register
    def _(self, command: c.Axpy) -> None:
        self._run(c.Combine((1.0, command.factor), (command.y, command.x), command.y))

    @_run.register
    def _(self, command: c.Combine) -> None:
        vectors, out = [self._of(name) for name in command.names], self.out(command.out)
        for chunk in chunks(slice(0, len(out))):
            total = np.zeros(chunk.stop - chunk.start)
            for factor, vector in zip(command.factors, vectors, strict=True):
                total += factor * vector[chunk].astype(np.float64)
            out[chunk] = total

    @_run.register
    def _(self, command: c.Multiply) -> None:
        np.multiply(self._of(command.x), self._of(command.y), out=self.out(command.out))

    @_run.register
    def _(self, command: c.Clip) -> None:
        np.clip(self._of(command.x), command.low, command.high, out=self.out(command.out))

    @_run.register
    def _(self, command: c.SteepestL1) -> None:
        x, g, penalty = self._of(command.x), self._of(command.g), self._of(command.penalty)
        at_zero = np.sign(g) * np.maximum(np.abs(g) - penalty, 0)
        self.out(command.out)[:] = np.where(x == 0, at_zero, g + penalty * np.sign(x))

    @_run.register
    def _(self, command: c.Orthant) -> None:
        x, g = self._of(command.x), self._of(command.g)
        self.out(command.out)[:] = np.where(x == 0, -np.sign(g), np.sign(x))

    @_run.register
    def _(self, command: c.KeepSigns) -> None:
        x, wanted = self._of(command.x), np.sign(command.factor) * np.sign(self._of(command.like))
        self.out(command.out)[:] = np.where(np.sign(x) == wanted, x, 0)

    @_run.register
    def _(self, command: c.Dots) -> list[np.ndarray]:
        rows, columns = [self._of(name) for name in command.rows], [self._of(name) for name in command.columns]
        found = []
        for block in self._blocks:
            total = np.zeros((len(rows), len(columns)))
            for chunk in chunks(block):
                left = np.stack([row[chunk].astype(np.float64) for row in rows])
                right = np.stack([column[chunk].astype(np.float64) for column in columns])
                total += left @ right.T
            found.append(total)
        return found

    @_run.register
    def _(self, command: c.Norm) -> list[np.ndarray]:
        x, weights = self._of(command.x), self._of(command.weights) if command.weights else None
        return [np.array([_norm(x, weights, block, command.order)]) for block in self._blocks]


def chunks(block: slice) -> Iterator[slice]:
    """A block's chunks, in order."""
    for start in range(block.start, block.stop, CHUNK_ELEMS):
        yield slice(start, min(start + CHUNK_ELEMS, block.stop))


def _norm(x: np.ndarray, weights: np.ndarray | None, block: slice, order: int) -> float:
    total = 0.0
    for chunk in chunks(block):
        part = np.abs(x[chunk].astype(np.float64))
        if order == 0:
            total = max(total, float(part.max()))
        elif order == 1:
            total += float((part * weights[chunk]).sum() if weights is not None else part.sum())
        else:
            total += float(part @ part)
    return total
