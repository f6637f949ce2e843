"""Upsample: the inverse of max pooling, by the places that it kept (SegNet's fork of Caffe)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layers.blob import Blob
from layers.errors import LayerError
from layers.layer import Layer, layer_types
from layers.neuron import refuse_gradient


@layer_types.register("Upsample")
class Upsample(Layer):
    """Each element goes to the place in its image that the mask names; 0 elsewhere.

    Bottoms: values (N, C, H, W) and a pooling layer's mask of that shape: row * width + column in the top's image.
    """

    n_bottoms = (2, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Find the size. Raises LayerError where shapes or sizes cannot be."""
        if bottom[0].ndim != 4 or bottom[0].shape != bottom[1].shape:
            raise LayerError(f"wants values and mask of one image shape, got {bottom[0].shape} and {bottom[1].shape}")
        top[0].reshape((*bottom[0].shape[:2], *self._out_size(bottom[0].shape)))

    def allow_force_backward(self, bottom_index: int) -> bool:
        """The mask has no gradient."""
        return bottom_index == 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Scatter. Raises LayerError for a place outside the image."""
        top[0].data_flat[...] = 0
        np.put_along_axis(self._pixels(top[0].data_storage), self._places(bottom, top),
                          self._pixels(bottom[0].data_storage), axis=1)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Gather."""
        refuse_gradient(propagate_down, [1])
        if propagate_down[0]:
            gathered = np.take_along_axis(self._pixels(top[0].diff_storage), self._places(bottom, top), axis=1)
            self._pixels(bottom[0].diff_storage)[...] = gathered

    def _places(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> np.ndarray:
        places = self._pixels(bottom[1].data_storage).astype(np.int64)
        if places.size and not 0 <= places.min() <= places.max() < top[0].count(2):
            raise LayerError(f"the mask names places {places.min()} to {places.max()}, outside an image of "
                             f"{top[0].shape[2:]}; check the scale against the pooling layer's")
        return places

    @staticmethod
    def _pixels(storage: np.ndarray) -> np.ndarray:
        """(N, pixels, C): a view of channels-last storage."""
        return storage.reshape(storage.shape[0], -1, storage.shape[-1])

    def _out_size(self, shape: Sequence[int]) -> tuple[int, int]:
        p = self.param.upsample_param
        if p.HasField("upsample_h") and p.HasField("upsample_w"):
            return p.upsample_h, p.upsample_w
        if p.HasField("scale_h") != p.HasField("scale_w"):
            raise LayerError("wants upsample_h and upsample_w, scale, or scale_h and scale_w")
        scales = (p.scale_h, p.scale_w) if p.HasField("scale_h") else (p.scale, p.scale)
        pads = p.pad_out_h, p.pad_out_w
        if min(scales) < 2 or any(pad and scale != 2 for pad, scale in zip(pads, scales)):
            raise LayerError(f"scales are at least 2, and exactly 2 with pad_out; got {scales} and {pads}")
        height, width = (n * scale - int(pad) for n, scale, pad in zip(shape[2:], scales, pads))
        return height, width
