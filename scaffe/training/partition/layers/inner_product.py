"""InnerProduct sharded by inputs or by outputs; messages travel while the next part is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.collectives.planning.plan import bounds
from scaffe.collectives.request import Request
from scaffe.layers.base.axes import weights_for_backward, weights_for_forward
from scaffe.layers.base.blob import Blob, claim_together
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import Layer
from scaffe.layers.fully_connected.inner_product import InnerProduct
from scaffe.training.partition.group import Group, SharedMapping
from scaffe.training.partition.layers.redistribution import RowsToWhole
from scaffe.training.partition.planner.timeline import MOST_CHUNKS

LEAST_BYTES = 64 << 10
"""Of a chunk, for each rank: at 1 Gbit/s half a millisecond, some ten times what starting a message takes."""


@dataclass
class Chunk:
    """Some of the outputs.

    Attributes:
        mapping: holds the sums.
        coming: brings the gradient of others' images; None: it is here.
    """

    place: slice
    plan: Any
    mapping: SharedMapping
    coming: Request | None = None

    @property
    def sums(self) -> np.ndarray:
        """(G, n), the outputs; in backward their gradient."""
        return self.mapping.array


class ProductByInputs(Layer):
    """InnerProduct where each rank has some of the inputs, of all images, and adds its part to all outputs.

    Bottom: (G, own inputs). Top: (b, num_output), the sums of own images; (G, num_output) where blobs lie whole.
    Blobs: weights (num_output, own inputs), transposed with ``transpose``; the whole bias, added once to the sum.

    Between nodes the outputs are taken in chunks: one is computed while the one before is summed, and while the next
    one's gradient is gathered. The results do not depend on when messages come.

    Args:
        gives_whole: whether the top lies whole (tests); there is no backward then.

    Attributes:
        chunks: the outputs; from ``reshape`` on.
    """

    chunks: list[Chunk]
    _part: np.ndarray  # a chunk's part of the bottom's gradient, which is added to the first chunk's

    def __init__(self, param: Any, context: Context, group: Group, gives_whole: bool) -> None:
        super().__init__(param, context)
        self._group, self._gives_whole = group, gives_whole

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, k = self.param.inner_product_param, bottom[0].count(1)
        weights = self.add_blob((k, p.num_output) if p.transpose else (p.num_output, k), None)
        weights.kernel_order = weights.shape[1], 1
        if p.bias_term:
            self.add_blob((p.num_output,), None)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        n_images, n_outputs = bottom[0].shape[0], self.param.inner_product_param.num_output
        n_chunks = self._n_chunks(n_images * n_outputs)
        places = [slice(*bounds(i, n_chunks, n_outputs)) for i in range(n_chunks)]
        self.chunks = [self._chunk(place, n_images, bottom[0].count(1)) for place in places]
        self._part = np.empty(bottom[0].n_elems if n_chunks > 1 else 0, self.context.dtype)
        top[0].reshape((n_images if self._gives_whole else n_images // self._group.n_ranks, n_outputs))

    def _n_chunks(self, n_elems: int) -> int:
        """Into how many messages so many sums are divided. Transposed weights of some outputs do not lie together."""
        if self._gives_whole or self.param.inner_product_param.transpose or not self._group.spans_nodes:
            return 1
        fitting = n_elems * self.context.dtype.itemsize // (LEAST_BYTES * self._group.n_ranks)
        return max(1, min(MOST_CHUNKS, fitting, int(self.param.inner_product_param.num_output)))

    def _chunk(self, place: slice, n_images: int, n_inputs: int) -> Chunk:
        n, transpose = place.stop - place.start, self.param.inner_product_param.transpose
        plan = self.context.kernels.inner_product(n_images, n, n_inputs, transpose, self.context.dtype)
        return Chunk(place, plan, SharedMapping(self._group, (n_images, n), self.context.dtype))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Own inputs' part of the sums, then the ranks' together, then the bias."""
        weights, y, requests = weights_for_forward(self.blobs[0]), top[0].data, []
        for chunk in self.chunks:
            chunk.plan.forward(bottom[0].data_flat, self._own(weights, chunk), None, chunk.sums.reshape(-1), None)
            if self._gives_whole:
                self._group.sum(chunk.sums)
                y[:, chunk.place] = chunk.sums
            else:
                requests.append(self._group.started("scatter_sum", chunk.sums))
        for chunk, request in zip(self.chunks, requests, strict=False):
            self._group.wait(request, f"sum {self.param.name}")
            y[:, chunk.place] = self._group.block(chunk.sums)
        if len(self.blobs) > 1:
            y += self.blobs[1].data

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Gather the outputs' gradient, from which each rank computes those of its weights and inputs alone."""
        for chunk in self.chunks if propagate_down[0] or self.param_propagate_down[0] else ():
            self._group.block(chunk.sums)[...] = top[0].diff[:, chunk.place]
            chunk.coming = self._group.started("gather", chunk.sums)
        if propagate_down[0]:
            self._backward_data(bottom[0])
            self.bottoms_written()
        if len(self.blobs) > 1 and self.param_propagate_down[1]:
            self.blobs[1].diff[...] += top[0].diff.sum(0)
        if self.param_propagate_down[0]:
            self._backward_weights(bottom[0])

    def _backward_data(self, bottom: Blob) -> None:
        weights, gradient = weights_for_backward(self.blobs[0]), bottom.diff_flat
        for chunk in self.chunks:
            self._arrive(chunk)
            part = gradient if chunk is self.chunks[0] else self._part
            chunk.plan.backward_data(chunk.sums.reshape(-1), self._own(weights, chunk), part)
            if part is not gradient:
                gradient += part

    def _backward_weights(self, bottom: Blob) -> None:
        (flat,), fresh = claim_together(self.blobs[:1])
        weights = flat.reshape(self.blobs[0].shape)
        for chunk in self.chunks:
            self._arrive(chunk)
            own = self._own(weights, chunk)
            chunk.plan.backward_weights(bottom.data_flat, chunk.sums.reshape(-1), own, None, fresh)

    def _own(self, weights: np.ndarray, chunk: Chunk) -> np.ndarray:
        """A chunk's part of the weights; in one piece unless these are transposed, and then there is one chunk."""
        return weights if len(self.chunks) == 1 else weights[chunk.place]

    def _arrive(self, chunk: Chunk) -> None:
        if chunk.coming is not None:
            self._group.wait(chunk.coming, f"gather {self.param.name}")
        chunk.coming = None


class GatherGemmOverlap(InnerProduct):
    """InnerProduct whose bottom is all-gathered while it multiplies: own images first, then others' as they arrive.

    The results do not depend on when images come. Bottom: (G, inputs). Top: (G, own outputs). Bottoms that are not
    stored in Caffe's order are waited for.

    Args:
        param: the rank's message, which counts own outputs.

    Attributes:
        pieces: images, and the plan of their product; from ``reshape`` on.
    """

    def __init__(self, param: Any, context: Context, gather: RowsToWhole) -> None:
        super().__init__(param, context)
        self._gather = gather
        gather.is_awaited = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        p, n_images, group = self.param.inner_product_param, bottom[0].shape[0], self._gather.group
        own = slice(group.rank * n_images // group.n_ranks, (group.rank + 1) * n_images // group.n_ranks)
        self.pieces = [(rows, self.context.kernels.inner_product(rows.stop - rows.start, p.num_output,
                                                                 bottom[0].count(1), p.transpose, self.context.dtype))
                       for rows in (own, slice(0, own.start), slice(own.stop, n_images)) if rows.start < rows.stop]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
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
