"""Weights in Caffe's order (O, I, K...) to the kernels', (O, K..., I) in the activations' type, and back."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels.cuda.arena import Part
from scaffe.layers.kernels.cuda.elementwise import convert
from scaffe.layers.kernels.cuda.launch import run_flat, wide
from scaffe.layers.kernels.extents import expect_elems


class Weights:
    """The conversions for weights of one shape.

    Args:
        shape: Caffe's, (O, I, K...).
        dtype: what kernels read.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._dtype, self._counts = np.dtype(dtype), (np.int32(shape[1]), np.int32(prod(shape[2:])))
        self._n_elems = prod(shape)
        self._turns = 1 not in self._counts
        self.part: Part = ((shape[0], *shape[2:], shape[1]), self._dtype)

    def laid_out(self, w: Any, scratch: Any) -> Any:
        """The weights in the kernels' order and type: w itself if it is, else ``scratch``, which they are written to.

        Weights in a half type have the kernels' order, since parameters are float32.
        """
        if w.dtype == self._dtype and (not self._turns or w.dtype != wide(w.dtype)):
            return w
        self.lay_out(w, scratch)
        return scratch

    def lay_out(self, w: Any, out: Any) -> None:
        """Write the weights w to ``out`` in the kernels' order and type."""
        expect_elems(self._n_elems, w, out)
        if not self._turns:
            convert(w.reshape(-1), out.reshape(-1))
            return
        run_flat("conversion", "weights_channels_last", self._dtype, w.size, (w, out, *self._counts),
                 other=np.dtype(w.dtype), per_thread=1)

    def bring_back(self, gradient: Any, gw: Any, overwrite: bool) -> None:
        """Add a gradient in the kernels' order, of any type, to gw in Caffe's order, or write it if ``overwrite``."""
        expect_elems(self._n_elems, gradient, gw)
        run_flat("conversion", "gradient_in_caffes_order", gw.dtype, gw.size,
                 (gradient, gw, *self._counts, np.int32(not overwrite)), other=np.dtype(gradient.dtype), per_thread=1)
