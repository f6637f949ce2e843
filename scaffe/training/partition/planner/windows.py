"""Windows of layers that reach over the border of a rank's part of an image: what they read of it; pure arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaffe.layers.base.kernel_geometry import conv_geometry
from scaffe.layers.kernels.specs import ConvSpec, PoolSpec
from scaffe.layers.normalization.lrn import WITHIN_CHANNEL
from scaffe.layers.vision.pooling import METHODS, window_pair
from scaffe.training.partition.sharding import BANDS, BY_BANDS, BY_CHANNELS, CHANNELS

WINDOWED = ("Convolution", "LocalConvolution")
FILTERS = (*WINDOWED, "Deconvolution")
LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Window:
    """A layer's windows along the axis that is cut.

    Attributes:
        extent: elements from a window's first to its last.
        stride: from one window to the next.
        pad: elements in front of the first element, and behind the last one.
        outputs: length of a bottom → windows.
        crops: whether the layer itself deals with borders. Then the halo has no padding, and what the layer computes
            of the halo is cut off.
    """

    cut: str
    extent: int
    stride: int
    pad: int
    outputs: Callable[[int], int]
    crops: bool = False
    padding: float = 0.0

    @property
    def halo(self) -> int:
        """Elements of other ranks that a rank with neighbours on both sides reads."""
        return max(self.extent - self.stride, 0)

    @property
    def brings_padding(self) -> bool:
        """Whether padding comes with the halo, so that the layer itself adds none."""
        return not self.crops

    def reads(self, outputs: slice, length: int) -> slice:
        """The elements that some outputs are computed from; from below 0 to beyond ``length`` where that is padding."""
        start = outputs.start * self.stride - self.pad
        stop = (outputs.stop - 1) * self.stride - self.pad + self.extent
        if self.crops:
            return slice(max(start, 0), min(stop, length))
        return slice(start, min(stop, length + self.pad))

    def inside(self, outputs: slice, own: slice, length: int) -> slice:
        """Those of some outputs that are computed from own elements and padding alone; of no length if none is.
        ``own``: the elements that the rank has."""
        start, stop = outputs.start, outputs.stop
        if own.start > 0:
            start = max(start, -(-(own.start + self.pad) // self.stride))
        if own.stop < length:
            stop = min(stop, (own.stop + self.pad - self.extent) // self.stride + 1)
        return slice(start, max(start, stop))

    def first_output(self, reads: slice) -> int:
        """Which output is the first that the layer makes of what it reads, where it crops."""
        return int(reads.start)


@dataclass(frozen=True)
class Spread:
    """A deconvolution's windows along the axis that is cut: each element adds to ``extent`` outputs.

    The layer adds no padding of its own, which would take outputs off at the borders of a rank's part, and what it
    makes beyond the rank's outputs is cut off.

    Attributes:
        extent, stride, pad: of the window on the outputs; the stride is not wider than the window.
    """

    extent: int
    stride: int
    pad: int
    cut = BANDS
    crops = brings_padding = True
    padding = 0.0

    def outputs(self, length: int) -> int:
        return (length - 1) * self.stride + self.extent - 2 * self.pad

    @property
    def halo(self) -> int:
        return -(-self.extent // self.stride) - 1

    def reads(self, outputs: slice, length: int) -> slice:
        start = -(-(outputs.start + self.pad - self.extent + 1) // self.stride)
        return slice(max(start, 0), min((outputs.stop - 1 + self.pad) // self.stride + 1, length))

    def inside(self, outputs: slice, own: slice, length: int) -> slice:
        """See Window: none; the halo is waited for."""
        return slice(outputs.start, outputs.start)

    def first_output(self, reads: slice) -> int:
        return int(reads.start * self.stride - self.pad)


Windows = Window | Spread


def window_of(layer: Any, kind: str) -> Windows | None:
    """The windows of a layer that is cut in a way; None where each output needs its own element alone. ``layer``: the
    LayerParameter message, of four-axis images."""
    if layer.type == "LRN":
        within = layer.lrn_param.norm_region == WITHIN_CHANNEL
        n = layer.lrn_param.local_size
        cut = BANDS if within else CHANNELS
        return Window(cut, n, 1, n // 2, int, crops=True) if kind == (BY_BANDS if within else BY_CHANNELS) else None
    if kind != BY_BANDS:
        return None
    if layer.type == "LCN":  # of deviations from means, each of a window
        around = layer.lcn_param.local_size // 2 * 2
        return Window(BANDS, 2 * around + 1, 1, around, int, crops=True)
    if layer.type in WINDOWED:
        return _of_convolution(filter_options(layer))
    if layer.type == "Deconvolution":
        kernel, stride, pad, dilation = (numbers[0] for numbers in conv_geometry(layer.convolution_param, 2))
        return Spread(dilation * (kernel - 1) + 1, stride, pad)
    return _of_pooling(layer.pooling_param) if layer.type == "Pooling" else None


def without_padding(layer: Any) -> None:
    """Take the padding of rows from a message whose bottom brings it along."""
    if layer.type in FILTERS:
        p = filter_options(layer)
        wide = conv_geometry(p, 2)[2][1]
        p.ClearField("pad")
        p.pad_h, p.pad_w = 0, wide
    elif layer.type == "Pooling":
        pool = layer.pooling_param
        wide = window_pair(pool, "pad", 0)[1]
        pool.ClearField("pad")
        pool.pad_h, pool.pad_w = 0, wide


def filter_options(layer: Any) -> Any:
    """The options of a Convolution, Deconvolution or LocalConvolution."""
    return layer.local_convolution_param if layer.type == "LocalConvolution" else layer.convolution_param


def _of_convolution(p: Any) -> Window:
    kernel, stride, pad, dilation = ((numbers[0],) for numbers in conv_geometry(p, 2))

    def outputs(length: int) -> int:
        return ConvSpec((1, 1, length), 1, kernel, stride, pad, dilation).out_spatial[0]

    return Window(BANDS, dilation[0] * (kernel[0] - 1) + 1, stride[0], pad[0], outputs)


def _of_pooling(p: Any) -> Window:
    method = METHODS[p.pool]
    kernel, stride, pad = ((window_pair(p, name, default)[0],) for name, default in
                           (("kernel", None), ("stride", 1), ("pad", 0)))

    def outputs(length: int) -> int:
        return PoolSpec((1, 1, length), method, kernel, stride, pad, p.round_mode == 0).out_spatial[0]

    return Window(BANDS, kernel[0], stride[0], pad[0], outputs, padding=LOWEST if method == "MAX" else 0.0)
