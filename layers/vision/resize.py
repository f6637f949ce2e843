"""Crop, one blob cut to the size of another (Caffe 1.0), and MergeCrop, as in U-Net (Ronneberger et al. 2015);
Interp, bilinear (DeepLab, PSPNet), and Upsample (SegNet's, YOLO's forks)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("Crop")
class Crop(Layer):
    """Bottom 0 cut to the lengths that bottom 1 has along ``axis`` and all axes after it.

    ``offset`` is where the window begins: one number for all cropped axes, or one for each; 0 if not given.
    Bottom 1 only gives its shape.
    """

    n_bottoms = (2, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.crop_param
        axis = check_axis(bottom[0], p.axis)
        n_cropped = bottom[0].ndim - axis
        offsets = list(p.offset) or [0]
        if len(offsets) not in (1, n_cropped):
            raise LayerError(f"wants 1 offset or {n_cropped} (one per axis from {axis} on), got {len(offsets)}")
        offsets *= n_cropped // len(offsets)
        shape = bottom[0].shape
        wanted = bottom[1].shape[axis : bottom[0].ndim]
        if len(wanted) != n_cropped or any(o + w > n for o, w, n in zip(offsets, wanted, shape[axis:], strict=True)):
            raise LayerError(f"a crop of {wanted} at {tuple(offsets)} does not fit {shape[axis:]}")
        self.window = (slice(None),) * axis + tuple(slice(o, o + w) for o, w in zip(offsets, wanted, strict=True))
        top[0].reshape((*shape[:axis], *wanted))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        np.copyto(top[0].data, bottom[0].data[self.window])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradient of bottom 0: the top's inside the window, 0 outside; that of bottom 1 is 0."""
        if propagate_down[0]:
            bottom[0].diff_flat[...] = 0
            bottom[0].diff[self.window] = top[0].diff
        if propagate_down[1]:
            bottom[1].diff_flat[...] = 0


ADD = 1  # MergeCropParameter.MergeOp


@layer_types.register("MergeCrop")
class MergeCrop(Layer):
    """Bottom 0 and the middle of bottom 1, of the same spatial shape: stacked along the channels, or added.

    ``forward`` selects the bottoms whose values count (default: both), ``backward`` those that get a gradient (default:
    bottom 0); the others' are 0. The fork computes on GPUs only, and mixes channels up if bottom 1 has more of them.

    Bottoms: (N, C, spatial...), (N, C', spatial'...), no axis of the second shorter. Top: (N, C + C', spatial...), or
    (N, C, spatial...) where they are added.
    """

    n_bottoms = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.mergecrop_param
        if max(len(p.forward), len(p.backward)) > 2:
            raise LayerError(f"has 2 bottoms, got {len(p.forward)} times forward and {len(p.backward)} times backward")
        self._adds = p.operation == ADD
        self._gives = _completed(p.forward, (True, True))
        self._learns = _completed(p.backward, (True, False))

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        a, b = (blob.shape for blob in bottom)
        if len(a) < 2 or len(a) != len(b) or a[0] != b[0] or any(n > m for n, m in zip(a[2:], b[2:], strict=True)):
            raise LayerError(f"wants bottoms (N, C, ...), the second one no shorter along any axis, got {a} and {b}")
        if self._adds and a[1] != b[1]:
            raise LayerError(f"adds bottoms of as many channels, got {a} and {b}")
        middle = tuple(slice((m - n) // 2, (m - n) // 2 + n) for n, m in zip(a[2:], b[2:], strict=True))
        both = slice(None)
        self._windows = (both, both), (both, both, *middle)
        self._parts = ((both, both),) * 2 if self._adds else ((both, slice(a[1])), (both, slice(a[1], None)))
        top[0].reshape(a if self._adds else (a[0], a[1] + b[1], *a[2:]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._adds or not all(self._gives):
            top[0].data_flat[...] = 0
        for blob, window, part, gives in zip(bottom, self._windows, self._parts, self._gives, strict=True):
            if gives and self._adds:
                top[0].data[part] += blob.data[window]
            elif gives:
                top[0].data[part] = blob.data[window]

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradients: the top's part inside the window, 0 elsewhere."""
        for i, (blob, wanted) in enumerate(zip(bottom, propagate_down, strict=True)):
            if wanted:
                blob.diff_flat[...] = 0
                if self._learns[i]:
                    blob.diff[self._windows[i]] = top[0].diff[self._parts[i]]


def _completed(given: Sequence[bool], defaults: tuple[bool, bool]) -> list[bool]:
    return [default if one is None else one for one, default in zip_longest(given, defaults)]


@layer_types.register("Interp")
class Interp(Layer):
    """Resizes images bilinearly; the corner pixels of the bottom become the corner pixels of the top.

    First, -pad_beg rows and columns are cut off at the top and left, and -pad_end at the bottom and right; both options
    are 0 or negative. The size then comes from bottom 1 if there is one, else from shrink_factor or zoom_factor alone,
    else from height and width, else from both factors (hszhao/PSPNet, interp_layer.cpp).

    Bottoms: images (N, C, H, W); optionally a blob whose height and width the top takes. Top: (N, C, H', W').
    """

    temporaries = 2
    n_bottoms = (1, 2)
    gradient_bottoms = (0,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, shape = self.param.interp_param, bottom[0].shape
        if len(shape) != 4 or p.pad_beg > 0 or p.pad_end > 0:
            raise LayerError(f"wants images and paddings of at most 0, got {shape}, {p.pad_beg} and {p.pad_end}")
        seen = [n + p.pad_beg + p.pad_end for n in shape[2:]]
        like = _height_and_width(bottom[1]) if len(bottom) > 1 else None
        wanted = [output_length(p, n, i, like) for i, n in enumerate(seen)]
        if min(*seen, *wanted) < 1:
            raise LayerError(f"cannot resize {tuple(seen)} to {tuple(wanted)}")
        top[0].reshape((*shape[:2], *wanted))
        dtype = self.context.param_dtype
        self.weights = [self.context.kernels.to_device(interpolation(n, -p.pad_beg, length, out, dtype))
                        for n, length, out in zip(shape[2:], seen, wanted, strict=True)]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        rows, columns = self.weights
        top[0].data[...] = rows @ self._wide(bottom[0].data) @ columns.T

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the images' gradient, by the transposed weights; bottom 1's is 0."""
        rows, columns = self.weights
        if propagate_down[0]:
            bottom[0].diff[...] = rows.T @ self._wide(top[0].diff) @ columns
        if len(bottom) > 1 and propagate_down[1]:
            bottom[1].diff_flat[...] = 0

    def _wide(self, x: Any) -> Any:
        """The array as float32 or wider: CuPy cannot multiply stacks of bfloat16 matrices."""
        return x.astype(self.context.param_dtype, copy=False)


def _height_and_width(blob: Blob) -> Sequence[int]:
    """Height and width of a blob; 1 for an axis that it lacks, as in Caffe's older layers."""
    if blob.ndim > 4:
        raise LayerError(f"takes the size of a bottom of at most four axes, got shape {blob.shape}")
    return (*blob.shape, 1, 1, 1, 1)[2:4] if blob.ndim > 2 else (1, 1)


def output_length(p: Any, n: int, index: int, like: Sequence[int] | None) -> int:
    """The length of spatial axis ``index`` (0: height, 1: width) after resizing one of ``n`` pixels, cropped already,
    by an InterpParameter message; ``like`` is the size of the second bottom. Raises LayerError if no size is given, or
    a factor is below 1."""
    if like is not None:
        return like[index]
    n_factors = p.HasField("shrink_factor") + p.HasField("zoom_factor")
    has_size = p.HasField("height") and p.HasField("width")
    if n_factors == 1 or n_factors == 2 and not has_size:
        if min(p.shrink_factor, p.zoom_factor) < 1:
            raise LayerError(f"factors are at least 1, got shrink {p.shrink_factor} and zoom {p.zoom_factor}")
        n = (n - 1) // int(p.shrink_factor) + 1
        return n + (n - 1) * (int(p.zoom_factor) - 1)
    if has_size:
        return int((p.height, p.width)[index])
    raise LayerError("wants a size: shrink_factor, zoom_factor, height and width, or a second bottom")


def interpolation(n: int, start: int, length: int, n_out: int, dtype: np.dtype) -> np.ndarray:
    """The weights (n_out, n) that resize one axis of n pixels by linear interpolation, outputs = weights @ inputs, of
    ``length`` elements from ``start`` on. The first output takes the first element used, the last output the last
    one."""
    places = np.arange(n_out) * ((length - 1) / (n_out - 1) if n_out > 1 else 0.0)
    below = np.minimum(places.astype(np.int64), length - 1)
    share = places - below
    weights = np.zeros((n_out, n), dtype)
    rows = np.arange(n_out)
    weights[rows, start + below] += 1 - share
    weights[rows, start + np.minimum(below + 1, length - 1)] += share
    return weights


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
    gradient_bottoms = (0,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
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

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(bottom) == 1:
            top[0].data_storage.reshape(self._blocks)[...] = bottom[0].data_storage[:, :, None, :, None]
            return
        top[0].data_flat[...] = 0
        np.put_along_axis(self._pixels(top[0].data_storage), self._places(bottom, top),
                          self._pixels(bottom[0].data_storage), axis=1)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Without a mask, the sum over each block. A mask's gradient is 0: a net asks for it if the mask comes from a
        pooling of something that learns."""
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
