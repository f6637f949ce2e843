"""Convolution3D and NdConvolution: convolution of clips.

Sources: facebookarchive/C3D, convolution3d_layer.cpp; chuckcho/video-caffe, cudnn_ndconv_layer.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
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
