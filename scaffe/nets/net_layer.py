"""One layer in its place in a net, and what a net asks where ranks share its layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from scaffe.errors import LayerError, UserError, users_line
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import Layer


@dataclass(frozen=True)
class Portion:
    """The part of one parameter that a rank has.

    Attributes:
        index: where the part lies in it, one slice an axis.
        on_single_rank: whether the part is all of it on the replica's first rank, and nothing on the others.
    """

    shape: tuple[int, ...]
    index: tuple[slice, ...]
    on_single_rank: bool = False

    @property
    def own_shape(self) -> tuple[int, ...]:
        return tuple(len(range(*place.indices(n))) for place, n in zip(self.index, self.shape, strict=True))

    @property
    def is_whole(self) -> bool:
        """Whether the part is everything, as on every rank."""
        return not self.on_single_rank and prod(self.own_shape) == prod(self.shape)

    def of(self, whole: np.ndarray) -> np.ndarray:
        """The part of a whole array, of any shape with as many elements."""
        return whole.reshape(self.shape)[self.index]


class Parts(Protocol):
    """How one rank's net differs from the whole net."""

    def layer(self, param: Any, context: Context, bottoms: Sequence[Blob]) -> Layer | None:
        """The layer that stands here for the one of a message; None for the type that the message names."""

    def fill(self, param: Any, layer: Layer) -> None:
        """Give a layer's parameters, right after its setup, their part of the whole layer's initial values."""

    def portion(self, layer: str, blob: int) -> Portion | None:
        """The part of a parameter that is here; None: all of it."""

    def original(self, param: Any) -> Any:
        """The whole net's message of a layer; None for a layer that the whole net does not have."""

    def whole(self, layer: str, blob: int, part: np.ndarray) -> np.ndarray:
        """A whole parameter, or what goes with it, from the parts of a replica's ranks, which all call it.
        Returns the whole on the first of the ranks, elsewhere the part."""


class LossShare(NamedTuple):
    """Factors on a layer's loss for one rank's part of a batch, so that the mean over ranks is the whole batch's loss.

    Attributes:
        value, gradient: the factor on the loss, and that on its gradients.
    """

    value: float = 1.0
    gradient: float = 1.0


class LossShares(NamedTuple):
    """One rank's share of a batch that ranks share unevenly.

    Attributes:
        weight: its images, as a multiple of an even share.
        outputs: by name of the net's output, the factor by which it counts, and the number of its elements that all
            ranks have.
    """

    weight: float = 1.0
    outputs: Mapping[str, tuple[float, int]] = MappingProxyType({})


@dataclass
class Node:
    """One layer in its place in the net.

    Attributes:
        bottoms, tops: its blobs; ``bottom_names`` and ``top_names`` are their names.
        propagate_down: for each bottom, whether backward computes its gradient.
        n_fused: how many of the layers right after this one (Scale, a sum, ReLU) are fused to it, to run in one pass.
        fused_offset: if this layer is fused to an earlier one, its index minus that layer's; else 0.
        ran_fused: whether the last forward ran in one pass with the layers fused to this one. The first
            ``layer.n_fused_back`` of them may then run backward in one pass too.
        includes: the node whose backward this one's includes, if this one runs first; None if there is none.
        ran_before: whether this layer's backward has just run as part of another's.
        shared: indices of the layer's blobs that another layer owns (Caffe's ``param { name }``).
        seen_shapes: shapes of bottoms and tops at the last reshape; None makes the layer reshape at its next pass.
    """

    layer: Layer
    param: Any
    name: str
    bottoms: list[Blob]
    tops: list[Blob]
    bottom_names: list[str]
    top_names: list[str]
    propagate_down: list[bool] = field(default_factory=list)
    loss_weights: list[float] = field(default_factory=list)
    needs_backward: bool = False
    n_fused: int = 0
    fused_offset: int = 0
    ran_fused: bool = False
    includes: Node | None = None
    ran_before: bool = False
    loss_scale: Any = 1.0
    share: LossShare = LossShare()
    shared: set[int] = field(default_factory=set)
    seen_shapes: tuple[Shape, ...] | None = None

    @property
    def is_source(self) -> bool:
        return not self.bottoms

    def reshape(self) -> None:
        """Reshape the layer if the shape of a bottom or top has changed, or if the layer has ``reshape_always``.

        A top that a user has reshaped gets back the shape that the layer gives it, as in Caffe.
        """
        if self.has_current_shapes and self.bottoms:
            return
        self.layer.reshape(self.bottoms, self.tops)
        self.seen_shapes = self._shapes()
        self.set_weights()

    @property
    def has_current_shapes(self) -> bool:
        """Whether the layer was reshaped for the shapes of all its blobs, and these do not depend on values."""
        return self._shapes() == self.seen_shapes and not self.layer.reshape_always

    def expect_shapes(self) -> None:
        """Raise LayerError if a blob was reshaped since forward, since backward needs forward's results."""
        if self._shapes() != self.seen_shapes and not self.layer.reshape_always:
            raise LayerError("a blob was reshaped after forward: run forward again before backward")

    def _shapes(self) -> tuple[Shape, ...]:
        return tuple([blob.shape for blob in (*self.bottoms, *self.tops)])

    def backward_rows(self, rows: slice, diffs: Sequence[Any]) -> None:
        with self.named():
            self.layer.backward_rows(rows, diffs, self.tops, self.bottoms)

    def set_weights(self) -> None:
        for top, weight in zip(self.tops, self.loss_weights, strict=False):
            if weight:
                top.diff_flat[:] = weight * self.share.gradient * self.loss_scale

    def loss(self, before: Any) -> Any:
        """``before``, 0.0 or those of other layers, plus this layer's part of the net's loss: the weighted sums of its
        tops, in float64. On a device the result stays there; nothing is launched for a weight of 1 and a sum of one."""
        for top, weight in zip(self.tops, self.loss_weights, strict=False):
            if weight:
                total, factor = top.data_flat.sum(dtype=np.float64), weight * self.share.value
                part = total if factor == 1 else factor * total
                before = part if isinstance(before, float) and not before else before + part
        return before

    @contextmanager
    def named(self) -> Iterator[None]:
        """In a with-block: turn errors of the layer into a UserError that names the layer."""
        try:
            yield
        except LayerError as error:
            raise UserError(users_line(error) or f"layer {self.name!r} ({self.param.type}): {error}") from error
        except MemoryError as error:
            raise UserError(f"layer {self.name!r} ({self.param.type}): not enough memory: {error}") from error


def all_bottoms(nodes: Sequence[Node]) -> list[Blob]:
    """The bottoms of a layer, then those that layers fused to it have from other layers."""
    others = [blob for each in nodes[1:] for blob in each.bottoms if blob is not nodes[0].tops[0]]
    return [*nodes[0].bottoms, *others]


def by_name(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """The layers with parameters by name; several of one name in the net's order."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        if node.layer.blobs:
            found.setdefault(node.name, []).append(node)
    return found
