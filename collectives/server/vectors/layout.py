"""Which elements of a vector lie on which shard, and in which blocks sums are made. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scaffe.collectives.planning import partition

STEADY_BLOCKS = 64
"""Blocks where sums must not depend on the number of shards: shards hold whole blocks, so there are at most as many."""


@dataclass(frozen=True)
class Blocks:
    """A vector cut into blocks, and the blocks shared out.

    A reduction sums every block by itself, then the blocks in their order: with as many blocks its bits are the same on
    any number of shards.

    Attributes:
        n_elems: length of the vector.
        n_shards: how many shards hold it.
        n_blocks: how many blocks; 0 for one a shard.
    """

    n_elems: int
    n_shards: int
    n_blocks: int = 0

    def of(self, shard: int) -> list[slice]:
        """A shard's blocks, in elements of the vector; empty ones left out."""
        n_blocks = self.n_blocks or self.n_shards
        own = partition.part(shard, self.n_shards, n_blocks)
        blocks = [partition.part(block, n_blocks, self.n_elems) for block in range(own.start, own.stop)]
        return [block for block in blocks if block.start < block.stop]

    def interval(self, shard: int) -> slice:
        """A shard's interval of the vector: its blocks together."""
        blocks = self.of(shard)
        return slice(blocks[0].start, blocks[-1].stop) if blocks else slice(0, 0)
