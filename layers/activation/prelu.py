"""Parametric rectified linear unit (He, Zhang, Ren and Sun 2015, section 2.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_n_axes
from scaffe.layers.base.layer import Layer, layer_types

FIRST_SLOPE = 0.25  # Caffe's value if the prototxt gives no filler


@layer_types.register("PReLU")
class PReLU(Layer):
    """y = x where x > 0, slope x elsewhere, with learned slopes.

    Bottom and top: (N, C, ...). Blobs: one slope for each channel, (C,), or with channel_shared one for all, ().
    """

    by_image = True
    temporaries = 3

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the slopes. Raises LayerError if the bottom has fewer than 2 axes."""
        check_n_axes(2, bottom[0])
        p = self.param.prelu_param
        self.shared = p.channel_shared
        blob = self.add_blob(() if self.shared else bottom[0].shape[1:2], p.filler if p.HasField("filler") else None)
        if not p.HasField("filler"):
            blob.data[...] = FIRST_SLOPE

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Give the top the bottom's shape. Raises LayerError if the channels do not fit the slopes."""
        check_n_axes(2, bottom[0])
        n_channels = bottom[0].shape[1]
        if not self.shared and n_channels != self.blobs[0].n_elems:
            raise LayerError(f"has slopes for {self.blobs[0].n_elems} channels, got shape {bottom[0].shape}")
        self._kept: np.ndarray | None = None
        if bottom[0] is top[0]:
            self._kept = np.empty_like(bottom[0].data)
        else:
            top[0].reshape(bottom[0].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write y."""
        x = bottom[0].data
        if self._kept is not None:
            self._kept[...] = x
        np.copyto(top[0].data, np.where(x > 0, x, self._slopes(x) * x))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add the slopes' gradients; write the bottom's: gy where x > 0, slope gy elsewhere (gy is the top's)."""
        x = bottom[0].data if self._kept is None else self._kept
        gy, below = top[0].diff, x <= 0
        if self.param_propagate_down[0]:
            others = None if self.shared else tuple(a for a in range(x.ndim) if a != 1)
            self.blobs[0].diff[...] += (gy * x * below).sum(axis=others)
        if propagate_down[0]:
            np.multiply(gy, np.where(below, self._slopes(x), 1), out=bottom[0].diff)

    def _slopes(self, x: np.ndarray) -> np.ndarray:
        return self.blobs[0].data.reshape((-1,) + (1,) * (x.ndim - 2))
