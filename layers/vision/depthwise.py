"""Depthwise convolution, under the names it has in forks of Caffe (MobileNet: Howard et al. 2017, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import layer_types
from scaffe.layers.vision.convolution import Convolution


@layer_types.register("DepthwiseConvolution", "ConvolutionDepthwise")
class DepthwiseConvolution(Convolution):
    """A convolution with one group for each channel; ``group`` in the prototxt is ignored.

    num_output is a multiple of the number of channels; if not given, it is that number.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Set up the convolution. Raises LayerError if num_output is not a multiple of the channels."""
        n_channels = bottom[0].shape[1] if bottom[0].ndim > 1 else 0
        message = type(self.param)()
        message.CopyFrom(self.param)
        p = message.convolution_param
        if n_channels < 1 or p.num_output % n_channels:
            raise LayerError(f"num_output {p.num_output} is not a multiple of the channels of {bottom[0].shape}")
        p.group, p.num_output = n_channels, p.num_output or n_channels
        self.param = message
        super().setup(bottom, top)
