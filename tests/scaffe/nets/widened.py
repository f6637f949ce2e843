"""Whether bfloat16 is computed as such on this processor, which decides what is rounded, and how often."""

import numpy as np

from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.widened import WidenedProduct
from scaffe.layers.kernels.specs import ConvSpec


def is_widened() -> bool:
    """Whether a convolution of bfloat16 runs in float32 between two roundings."""
    import ml_dtypes

    ones = (1, 1)
    spec = ConvSpec((16, 24, 10, 10), 24, (3, 3), ones, ones, ones, dtype=np.dtype(ml_dtypes.bfloat16))
    return isinstance(cpu.convolution(spec), WidenedProduct)
