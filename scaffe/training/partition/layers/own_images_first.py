"""InnerProduct split by outputs: own images are multiplied while those of other ranks travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Context
from scaffe.layers.base.weights import weights_for_forward
from scaffe.layers.fully_connected.inner_product import InnerProduct
from scaffe.training.partition.layers.moves import RowsToWhole


class OwnImagesFirst(InnerProduct):
    """InnerProduct whose bottom is gathered: own images, then those of the ranks before, then of those behind.

    The results do not depend on when images come. Bottom: (G, inputs). Top: (G, own outputs). Bottoms that are not
    stored in Caffe's order are waited for.

    Args:
        param: the rank's message, which counts own outputs.
        context: the net's.
        gather: brings the bottom.

    Attributes:
        pieces: images, and the plan of their product; from ``reshape`` on.
    """

    def __init__(self, param: Any, context: Context, gather: RowsToWhole) -> None:
        super().__init__(param, context)
        self._gather = gather
        gather.is_awaited = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """See InnerProduct."""
        super().reshape(bottom, top)
        p, n_images, group = self.param.inner_product_param, bottom[0].shape[0], self._gather.group
        own = slice(group.rank * n_images // group.n_ranks, (group.rank + 1) * n_images // group.n_ranks)
        self.pieces = [(rows, self.context.kernels.inner_product(rows.stop - rows.start, p.num_output,
                                                                 bottom[0].count(1), p.transpose, self.context.dtype))
                       for rows in (own, slice(0, own.start), slice(own.stop, n_images)) if rows.start < rows.stop]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        """See InnerProduct."""
        if self._plain is not None or self._plain_top is not None:
            self._gather.arrive()
            super().forward(bottom, top, relu_slope)
            return
        weights, bias = weights_for_forward(self.blobs[0]), self.blobs[1].data if len(self.blobs) > 1 else None
        x, y = (blob.data_flat.reshape(blob.shape[0], -1) for blob in (bottom[0], top[0]))
        for i, (rows, plan) in enumerate(self.pieces):
            if i == 1:
                self._gather.arrive()
            plan.forward(x[rows], weights, bias, y[rows], relu_slope)
