"""Convolution and pooling of clips: Convolution3D, NdConvolution, Pooling3D and NdPooling.

Sources: facebookarchive/C3D, convolution3d_layer.cpp and pool3d_layer.cpp; chuckcho/video-caffe, cudnn_ndconv_layer.cpp
and cudnn_ndpooling_layer.cpp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from itertools import product
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.kernel_geometry import check_geometry, refuse_times
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.vision.convolution import Convolution
from scaffe.proto import caffe_pb2


@layer_types.register("Convolution3D")
class Convolution3D(Convolution):
    """Convolution of clips with windows of kernel_depth frames and kernel_size x kernel_size pixels.

    ``stride`` and ``pad`` are those of height and width, ``temporal_stride`` and ``temporal_pad`` of time.
    ``filter_group`` only says in how many parts C3D computes the outputs; it must divide them. A Convolution with three
    numbers for each of its options computes the same.

    Bottom: (N, C, frames, H, W). Top: (N, num_output, frames', H', W').
    Blobs: weights (num_output, C, kernel_depth, kernel_size, kernel_size); bias (1, 1, 1, 1, num_output) unless
    bias_term is false.
    """

    n_bottoms = (1, 1)
    n_tops = (1, 1)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.convolution3d_param
        if bottom[0].ndim != 5:
            raise LayerError(f"takes clips (N, C, frames, H, W), got shape {bottom[0].shape}")
        if p.group != 1:
            raise LayerError(f"every output sees all channels, got group {p.group}; Convolution has groups")
        if p.filter_group < 1 or p.num_output % p.filter_group:
            raise LayerError(f"filter_group {p.filter_group} does not divide num_output {p.num_output}")
        super().setup(bottom, top)
        if p.bias_term:
            self.blobs[1].reshape((1, 1, 1, 1, p.num_output))

    @cached_property
    def _options(self) -> Any:
        """The options as a ConvolutionParameter message."""
        p = self.param.convolution3d_param
        return caffe_pb2.ConvolutionParameter(
            num_output=p.num_output, bias_term=p.bias_term, kernel_size=[p.kernel_depth, p.kernel_size, p.kernel_size],
            stride=[p.temporal_stride, p.stride, p.stride], pad=[p.temporal_pad, p.pad, p.pad],
            weight_filler=p.weight_filler, bias_filler=p.bias_filler)


@layer_types.register("NdConvolution")
class NdConvolution(Convolution):
    """A Convolution whose window is given by kernel_shape, stride_shape and pad_shape, a number a spatial axis.

    Bottoms, tops and blobs as for Convolution.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape_of(self.param.convolution_param, "kernel_shape", None, bottom[0].ndim - 2)
        super().setup(bottom, top)

    @cached_property
    def _options(self) -> Any:
        """The options as a ConvolutionParameter message without shapes."""
        p = caffe_pb2.ConvolutionParameter()
        p.CopyFrom(self.param.convolution_param)
        n_axes = len(p.kernel_shape.dim)
        for name, values in (("kernel_size", shape_of(p, "kernel_shape", None, n_axes)),
                             ("stride", shape_of(p, "stride_shape", 1, n_axes)),
                             ("pad", shape_of(p, "pad_shape", 0, n_axes))):
            del getattr(p, name)[:]
            getattr(p, name).extend(values)
        return p


def shape_of(p: Any, name: str, default: int | None, n_axes: int) -> tuple[int, ...]:
    """The shape ``name`` of a ConvolutionParameter or PoolingParameter message, a number a spatial axis; ``default`` on
    every axis if it is not given. Raises LayerError if it has another number of axes, or is missing without a
    default."""
    dims = tuple(int(n) for n in getattr(p, name).dim)
    if not dims and default is not None:
        return (default,) * n_axes
    if len(dims) != n_axes or min(dims, default=0) < 0:
        raise LayerError(f"wants a {name} of {n_axes} numbers, one a spatial axis, got {list(dims)}")
    return dims


Slices = tuple[slice, ...]
MAX, AVE = 0, 1  # Pooling3DParameter.PoolMethod


class _Pooling(Layer):
    """The base of both: the largest element or the mean of each window over all spatial axes.

    A top's axis has ceil((in + 2 pad - kernel) / stride) + 1 elements. A subclass sets ``_method`` and the window.
    """

    keeps_bottom = True
    _clips = False  # a last window that would start in the padding is left out
    _method: int
    _kernel: tuple[int, ...]
    _stride: tuple[int, ...]
    _pad: tuple[int, ...]
    temporaries = 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = bottom[0].shape
        if len(shape) != 2 + len(self._stride):
            raise LayerError(f"takes clips (N, C, frames, H, W), or as many axes as its window has, got shape {shape}")
        kernel = self._window(shape[2:])
        out = tuple(self._n_windows(*numbers)
                    for numbers in zip(shape[2:], kernel, self._stride, self._pad, strict=True))
        outside = any((length - 1) * s >= n + 2 * p
                      for n, length, s, p in zip(shape[2:], out, self._stride, self._pad, strict=True))
        if min(out) < 1 or outside:
            raise LayerError(f"windows of {kernel} at strides {self._stride} do not fit a bottom {shape}")
        top[0].reshape((*shape[:2], *out))
        self._places = list(self._offsets(shape[2:], out, kernel))
        if self._method == AVE:
            shares = self._window_shares(shape[2:], out, kernel)
            self._shares = self.context.kernels.to_device(shares, self.context.dtype)

    def _window(self, lengths: Sequence[int]) -> tuple[int, ...]:
        """The window's lengths, for a bottom of these spatial axes."""
        return self._kernel

    def _n_windows(self, length: int, kernel: int, stride: int, pad: int) -> int:
        """How many windows an axis has."""
        n = -((kernel - length - 2 * pad) // stride) + 1
        return n - 1 if self._clips and pad and (n - 1) * stride >= length + pad else n

    def _offsets(self, lengths: Sequence[int], out: Sequence[int],
                 kernel: Sequence[int]) -> Iterator[tuple[Slices, Slices]]:
        """For each place in a window: the elements of the bottom that lie there, and the windows that have them."""
        axes = [[one_offset(place, n, m, s, p) for place in range(k)] for n, m, k, s, p in
                zip(lengths, out, kernel, self._stride, self._pad, strict=True)]
        for places in product(*axes):
            yield (slice(None), *(x for x, _ in places)), (slice(None), *(y for _, y in places))

    def _window_shares(self, lengths: Sequence[int], out: Sequence[int], kernel: Sequence[int]) -> np.ndarray:
        """1 / elements of each window, padding counted, (spatial'..., 1)."""
        sizes = [np.minimum(np.arange(m) * s + k, n + 2 * p) - np.arange(m) * s for n, m, k, s, p in
                 zip(lengths, out, kernel, self._stride, self._pad, strict=True)]
        shares: np.ndarray = 1.0 / reduce(np.multiply.outer, sizes)[..., None]
        return shares

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = (np.moveaxis(blob.data, 1, -1) for blob in (bottom[0], top[0]))
        is_max = self._method == MAX
        y[...] = -np.finfo(np.float32).max if is_max else 0
        for there, windows in self._places:
            y[windows] = np.maximum(y[windows], x[there]) if is_max else y[windows] + x[there]
        if not is_max:
            y *= self._shares

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if not propagate_down[0]:
            return
        x, y, gx, gy = (np.moveaxis(array, 1, -1)
                        for array in (bottom[0].data, top[0].data, bottom[0].diff, top[0].diff))
        gx[...] = 0
        given: Any = gy if self._method == MAX else gy * self._shares
        for there, windows in self._places:
            if self._method == MAX:
                gx[there] += given[windows] * (x[there] == y[windows])
            else:
                gx[there] += given[windows]

@layer_types.register("Pooling3D")
class Pooling3D(_Pooling):
    """The largest element or the mean of each window of kernel_depth frames and kernel_size x kernel_size pixels.

    ``stride`` and ``pad`` are those of height and width, ``temporal_stride`` of time; only AVE has a pad, which it
    counts as zeros, but not what lies beyond it. The gradient of MAX goes to every element of a window that equals the
    largest.

    Bottom: (N, C, frames, H, W). Top: (N, C, frames', H', W').
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.pooling3d_param
        self._method = p.pool
        self._kernel = (p.kernel_depth, p.kernel_size, p.kernel_size)
        self._stride = (p.temporal_stride, p.stride, p.stride)
        self._pad = (0, p.pad, p.pad)
        check_geometry(1, kernel_depth=self._kernel[:1], kernel_size=self._kernel[1:], temporal_stride=self._stride[:1],
                     stride=self._stride[1:])
        if p.pool not in (MAX, AVE):
            raise LayerError("pools by MAX or AVE; STOCHASTIC pooling of clips is in no fork")
        if p.pad and p.pool != AVE:
            raise LayerError(f"only AVE pooling of clips has a pad, got {p.pad}")


@layer_types.register("NdPooling")
class NdPooling(_Pooling):
    """The largest element or the mean of each window of kernel_shape, over any number of spatial axes.

    The window moves by stride_shape in an image padded by pad_shape; a last window that would start in the padding is
    left out. With global_pooling it is the whole image. AVE counts the padding as zeros.

    Bottom: (N, C, spatial...). Top: (N, C, spatial'...).
    """

    _clips = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, n_axes = self.param.pooling_param, bottom[0].ndim - 2
        self._method, self._kernel = self.method(), shape_of(p, "kernel_shape", None, n_axes)
        self._stride, self._pad = shape_of(p, "stride_shape", 1, n_axes), shape_of(p, "pad_shape", 0, n_axes)
        check_geometry(1, kernel_shape=self._kernel, stride_shape=self._stride)

    def method(self) -> int:
        """MAX or AVE. Raises LayerError for another."""
        chosen: int = self.param.pooling_param.pool
        if chosen not in (MAX, AVE):
            raise LayerError("pools by MAX or AVE; STOCHASTIC pooling of clips is in no fork")
        return chosen

    def _window(self, lengths: Sequence[int]) -> tuple[int, ...]:
        return tuple(lengths) if self.param.pooling_param.global_pooling else self._kernel


def one_offset(offset: int, length: int, n_windows: int, stride: int, pad: int) -> tuple[slice, slice]:
    """Along one axis, the elements at place ``offset`` of their windows, and these windows: slices of the bottom's axis
    and of the top's, of one length."""
    first = max(0, -((offset - pad) // stride))
    end = min(n_windows, (length - 1 + pad - offset) // stride + 1)
    end = max(end, first)
    start = first * stride - pad + offset
    return slice(start, start + (end - first) * stride, stride), slice(first, end)


FLOOR = 1  # PoolingParameter.RoundMode
PAIRS = ("kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w")


class EvenPooling(NdPooling):
    """What a Pooling is on a bottom of five axes: kernel_size, stride and pad hold for each of the last three.

    Bottom: (N, C, frames, H, W). Top: (N, C, frames', H', W'), lengths as for Pooling.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, n_axes = self.param.pooling_param, bottom[0].ndim - 2
        refuse_times(p, "a Pooling of clips has one kernel_size")
        pairs = [name for name in PAIRS if p.HasField(name)]
        if pairs:
            raise LayerError(f"takes one kernel_size, stride and pad for {n_axes} spatial axes, got {pairs[0]}; "
                             "NdPooling takes one an axis")
        self._method, self._kernel = self.method(), (p.kernel_size,) * n_axes
        self._stride, self._pad = (p.stride,) * n_axes, (p.pad,) * n_axes
        if not p.global_pooling:
            check_geometry(1, kernel_size=self._kernel, stride=self._stride)

    def _n_windows(self, length: int, kernel: int, stride: int, pad: int) -> int:
        if self.param.pooling_param.round_mode == FLOOR:
            return (length + 2 * pad - kernel) // stride + 1
        return super()._n_windows(length, kernel, stride, pad)
