"""Concat and Slice along the axis that ranks share: which rank needs what of whose part; pure index arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from scaffe.collectives.planning.partition import bounds
from scaffe.layers.reshaping.slice import cut_points


@dataclass(frozen=True)
class Piece:
    """Places that one rank has of a part, and one rank, often another, of the whole.

    Attributes:
        part: its number.
        part_rank, whole_rank: who has it.
        start, stop: its places, counted in the whole.
    """

    part: int
    part_rank: int
    whole_rank: int
    start: int
    stop: int


@dataclass(frozen=True)
class Joint:
    """Parts that lie in a whole, one behind the other, all of them cut for the same ranks.

    Attributes:
        lengths: of the parts.
        area: elements of an image at each place.
    """

    lengths: tuple[int, ...]
    area: int = 1

    @property
    def starts(self) -> list[int]:
        """Where each part begins in the whole, and the end."""
        return list(accumulate(self.lengths, initial=0))

    def tops_of(self, layer_type: str) -> tuple[int, ...]:
        """The lengths of a Concat's or Slice's tops."""
        return (sum(self.lengths),) if layer_type == "Concat" else self.lengths

    def pieces(self, n_ranks: int) -> list[Piece]:
        """All pieces, in the order of the whole."""
        found = []
        wholes = [bounds(rank, n_ranks, sum(self.lengths)) for rank in range(n_ranks)]
        for part, (start, length) in enumerate(zip(self.starts, self.lengths, strict=False)):
            for part_rank in range(n_ranks):
                own = [start + at for at in bounds(part_rank, n_ranks, length)]
                for whole_rank, whole in enumerate(wholes):
                    first, last = max(own[0], whole[0]), min(own[1], whole[1])
                    if first < last:
                        found.append(Piece(part, part_rank, whole_rank, first, last))
        return found

    def sent(self, n_ranks: int) -> int:
        """Elements an image that the rank sends which sends most, from parts to the whole."""
        sent = [0] * n_ranks
        for piece in self.pieces(n_ranks):
            if piece.part_rank != piece.whole_rank:
                sent[piece.part_rank] += piece.stop - piece.start
        return self.area * max(sent)


def joined_axis(layer: Any, n_axes: int) -> int:
    """The axis along which a Concat or Slice works; counted from the front."""
    p: Any = layer.concat_param if layer.type == "Concat" else layer.slice_param
    older = "concat_dim" if layer.type == "Concat" else "slice_dim"
    axis = getattr(p, older) if p.HasField(older) else p.axis
    return int(axis % n_axes)


def joint_of(layer: Any, lengths: tuple[int, ...]) -> Joint:
    """The joint of a Concat or Slice along the axis that is cut, from its whole bottoms' lengths."""
    if layer.type == "Concat":
        return Joint(lengths)
    points = cut_points(lengths[0], len(layer.top), list(layer.slice_param.slice_point))
    return Joint(tuple(end - start for start, end in pairwise(points)))
