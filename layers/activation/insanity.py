"""Insanity: leaky ReLU with slopes drawn at random (Xu et al. 2015, RReLU; happynear's fork, insanity_layer.cpp)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import TRAIN, layer_types
from scaffe.layers.base.layout import is_plain
from scaffe.layers.base.neuron import Elementwise


@layer_types.register("Insanity")
class Insanity(Elementwise):
    """y = x where x > 0, x / a elsewhere; a is drawn from [lb, ub) for each element in training.

    In testing a = (ub - lb) / (log |ub| - log |lb|).

    Raises:
        LayerError: ub is not above lb, one of them is 0, or the bottom has fewer than two axes.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the bounds."""
        p = self.param.insanity_param
        if not p.ub > p.lb or p.lb * p.ub == 0:
            raise LayerError(f"wants bounds lb below ub, neither of them 0, got {p.lb:g} and {p.ub:g}")
        ratio = np.log(abs(p.ub)) - np.log(abs(p.lb))
        self._mean = (p.ub - p.lb) / ratio if ratio else np.inf
        self._low, self._range = p.lb, p.ub - p.lb

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape."""
        if bottom[0].ndim < 2:
            raise LayerError(f"takes bottoms of two axes or more, got shape {bottom[0].shape}")
        super().reshape(bottom, top)
        slopes = self.context.dtype if self.context.phase == TRAIN else np.result_type(self.context.dtype, self._mean)
        self._factors: np.ndarray = self.context.xp.empty(bottom[0].n_elems, slopes)
        self._draws = self.context.kernels.uniform(bottom[0].shape, not is_plain(bottom[0]), self.context.draws,
                                                   self.context.dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Draw the slopes and write y, piece by piece, so that temporaries are short."""
        drawn = [self._draws.next()] if self.context.phase == TRAIN else []
        for x, y, factors, *draws in self._pieces(bottom[0].data_flat, top[0].data_flat, self._factors, *drawn):
            slopes = self._low + self._range * draws[0] if draws else self._mean
            one = x.dtype.type(1)
            factors[...] = np.where(x > 0, one, one / slopes)
            np.multiply(x, factors, out=y)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the bottom's diff."""
        if propagate_down[0]:
            np.multiply(top[0].diff_flat, self._factors, out=bottom[0].diff_flat)
