"""Embed: looks up a row of a learned table for each index (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import refuse_gradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Embed")
class Embed(Layer):
    """Row ``index`` of the weights, plus a bias, for each index in the bottom.

    Bottom: whole numbers from 0 to input_dim - 1, of any shape. Top: the bottom's shape, then num_output.
    Blobs: weights (input_dim, num_output); bias (num_output,) unless bias_term is false.
    """

    host_only = True
    exact_bottoms = (0,)
    temporaries = 1
    gradient_bottoms = ()

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.embed_param
        for name in ("num_output", "input_dim"):
            if getattr(p, name) <= 0:
                raise LayerError(f"embed_param.{name} must be at least 1, got {getattr(p, name)}")
        self.add_blob((p.input_dim, p.num_output), p.weight_filler)
        if p.bias_term:
            self.add_blob((p.num_output,), p.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape((*bottom[0].shape, self.param.embed_param.num_output))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._indices = bottom[0].data.astype(np.int64)
        n_rows = self.param.embed_param.input_dim
        wrong = (self._indices < 0) | (self._indices >= n_rows)
        if wrong.any():
            raise LayerError(f"index {self._indices[wrong][0]} is not in a table of input_dim {n_rows}")
        top[0].data[...] = self.blobs[0].data[self._indices]
        if len(self.blobs) > 1:
            top[0].data[...] += self.blobs[1].data

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, [0])
        rows = top[0].diff.reshape(-1, self.param.embed_param.num_output)
        if self.param_propagate_down[0]:
            np.add.at(self.blobs[0].diff, self._indices.reshape(-1), rows)
        if len(self.blobs) > 1 and self.param_propagate_down[1]:
            self.blobs[1].diff[...] += rows.sum(axis=0)
