"""Upsample: larger images, by undoing max pooling (SegNet's fork of Caffe) or repeating pixels (YOLO's forks)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Upsample")
class Upsample(Layer):
    """Enlarges images, with or without the mask of a max pooling layer.

    With a mask, each element is copied to the pixel that had been the maximum; all other pixels are 0. Without, each
    element is repeated to fill a block of pixels (nearest neighbour); H' and W' are then multiples of H and W.

    Bottoms: images (N, C, H, W); optionally the mask, of this shape, holding row * W' + column in the top's image.
    Top: (N, C, H', W'), the size from upsample_h and upsample_w, or from the scale.
    """

    n_bottoms = (1, 2)
    exact_bottoms = (1,)
    temporaries = 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top. Raises LayerError if the mask's shape or the top's size does not fit the images."""
        shape, mask = bottom[0].shape, bottom[-1].shape
        if len(shape) != 4 or shape != mask:
            raise LayerError(f"wants values and mask of one image shape, got {shape} and {mask}")
        out = self._out_size(shape, 1 if len(bottom) == 1 else 2)
        if 0 in shape[2:]:
            raise LayerError(f"wants images of at least one pixel, got shape {shape}")
        if len(bottom) == 1 and (out[0] % shape[2] or out[1] % shape[3]):
            raise LayerError(f"without a mask the top's size {out} must be a multiple of the bottom's, {shape[2:]}")
        self._blocks = (shape[0], shape[2], out[0] // shape[2], shape[3], out[1] // shape[3], shape[1])
        top[0].reshape((*shape[:2], *out))

    def allow_force_backward(self, bottom_index: int) -> bool:
        """The mask has no gradient."""
        return bottom_index == 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Copy the elements to their pixels. Raises LayerError if the mask names a pixel outside the image."""
        if len(bottom) == 1:
            top[0].data_storage.reshape(self._blocks)[...] = bottom[0].data_storage[:, :, None, :, None]
            return
        top[0].data_flat[...] = 0
        np.put_along_axis(self._pixels(top[0].data_storage), self._places(bottom, top),
                          self._pixels(bottom[0].data_storage), axis=1)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the images' gradient: that of the pixel written to, or without a mask the sum over each block.

        A mask's gradient is 0: a net asks for it if the mask comes from a pooling of something that learns.
        """
        if len(bottom) > 1 and propagate_down[1]:
            bottom[1].diff_flat[...] = 0
        if propagate_down[0] and len(bottom) == 1:
            bottom[0].diff_storage[...] = top[0].diff_storage.reshape(self._blocks).sum(axis=(2, 4))
        elif propagate_down[0]:
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
        n, height, width, n_channels = storage.shape
        return storage.reshape(n, height * width, n_channels)

    def _out_size(self, shape: Sequence[int], least: int) -> tuple[int, int]:
        p = self.param.upsample_param
        if p.HasField("upsample_h") and p.HasField("upsample_w"):
            return p.upsample_h, p.upsample_w
        if p.HasField("scale_h") != p.HasField("scale_w"):
            raise LayerError("wants upsample_h and upsample_w, scale, or scale_h and scale_w")
        scales = (p.scale_h, p.scale_w) if p.HasField("scale_h") else (p.scale, p.scale)
        pads = p.pad_out_h, p.pad_out_w
        if min(scales) < least or any(pad and scale != 2 for pad, scale in zip(pads, scales, strict=True)):
            raise LayerError(f"scales are at least {least}, and exactly 2 with pad_out; got {scales} and {pads}")
        height, width = (n * scale - int(pad) for n, scale, pad in zip(shape[2:], scales, pads, strict=True))
        return height, width
