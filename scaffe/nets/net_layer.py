"""One layer in its place in a net."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer


@dataclass
class Node:
    """One layer in its place in the net.

    Attributes:
        layer, param, name: the layer, its LayerParameter message and its name.
        bottoms, tops: its blobs; ``bottom_names`` and ``top_names`` theirs.
        propagate_down: per bottom, whether backward computes its gradient.
        loss_weights: per top.
        needs_backward: whether backward visits the layer.
        n_behind: how many in-place layers right behind (Scale, ReLU) this one computes in the same pass.
        n_ahead: how many places ahead the layer lies that computes this one in its pass; 0 where none does.
        together: whether the last forward computed those behind too, and backward shall.
        loss_scale: factor on the loss weights in backward (half precision).
        shared: indices of the layer's blobs that another layer owns (Caffe's ``param { name }``).
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
    n_behind: int = 0
    n_ahead: int = 0
    together: bool = False
    loss_scale: float = 1.0
    shared: set[int] = field(default_factory=set)
    seen_shapes: tuple[Shape, ...] | None = None

    @property
    def is_source(self) -> bool:
        """Whether the layer only brings data in."""
        return not self.bottoms

    def reshape(self) -> None:
        """Reshape the layer if a bottom's shape changed since last time (or the layer always wants it)."""
        shapes = tuple([b.shape for b in self.bottoms])
        if shapes == self.seen_shapes and not self.layer.reshape_always and self.bottoms:
            return
        self.layer.reshape(self.bottoms, self.tops)
        self.seen_shapes = shapes
        self.set_weights()

    def set_weights(self) -> None:
        """Write the loss weights into the tops' diffs, where backward starts from them."""
        for top, weight in zip(self.tops, self.loss_weights):
            if weight:
                top.diff_flat[:] = weight * self.loss_scale

    def loss(self) -> Any:
        """This layer's share of the net's loss, from its tops as they are; on a device a number that is still there."""
        return sum(weight * top.data_flat.sum(dtype=np.float64)
                   for top, weight in zip(self.tops, self.loss_weights) if weight)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors of the layer name it, as UserError."""
        try:
            yield
        except LayerError as error:
            raise UserError(f"layer {self.name!r} ({self.param.type}): {error}") from error
