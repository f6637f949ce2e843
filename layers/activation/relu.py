"""ReLU, with Caffe's negative_slope (leaky ReLU)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.neuron import Neuron
from scaffe.layers.kernels.signs import WORD, n_words


@layer_types.register("ReLU")
class ReLU(Neuron):
    """y = x where x > 0, negative_slope · x elsewhere (Caffe 1.0). It works in place, too.

    The gradient needs only whether x > 0. Unless the slope is negative, y > 0 tells the same, so that x need not be
    kept.

    Attributes:
        keeps_signs: whether a bit of each element is kept for backward, which then reads no data ("Binarize" of Gist,
            Jain et al., ISCA 2018). Set before ``reshape``, with ``reads_bottoms``, where the slope is not negative.
    """

    keeps_signs = False

    by_image = recordable = repeatable = True
    reads_tops = False

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        """See Layer."""
        return True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the slope. If it is negative, the layer keeps a copy of x when it works in place."""
        self._slope = float(self.param.relu_param.negative_slope)
        self._signs: np.ndarray | None = None
        self.keeps_input = self._slope < 0

    @property
    def relu_slope(self) -> float | None:
        """The slope, for a layer that this one can be fused with; None if it must not be fused."""
        return None if self.keeps_input else self._slope

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape."""
        super().reshape(bottom, top)
        if self.keeps_signs and self.signs_bytes != WORD.itemsize * n_words(bottom[0].n_elems):
            self._signs = self.context.xp.zeros(n_words(bottom[0].n_elems), WORD)

    @property
    def signs_bytes(self) -> int:
        """Of the bits that it keeps."""
        return 0 if self._signs is None else int(self._signs.nbytes)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the top's data."""
        super().forward(bottom, top)
        self.keep(top)

    def keep(self, top: Sequence[Blob]) -> None:
        """See Layer."""
        if self._signs is not None:
            self.context.kernels.note_signs(top[0].data_flat, self._signs)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Compute the bottom's diff, if it is wanted."""
        if self._signs is None:
            super().backward(top, propagate_down, bottom)
        elif propagate_down[0]:
            self.context.kernels.relu_backward_signs(self._signs, top[0].diff_flat, bottom[0].diff_flat, self._slope)

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        """Write y."""
        self.context.kernels.relu_forward(x, y, self._slope)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """Write gx: gy where x > 0, negative_slope · gy elsewhere."""
        self.context.kernels.relu_backward(x, gy, gx, self._slope)
