"""The parameters of batch normalisation kernels, the same for every backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels.specs import Ints


@dataclass(frozen=True)
class NormSpec:
    """A batch normalisation.

    Attributes:
        in_shape: logical (N, C, spatial...); mean and variance are per channel.
        eps: added to the variance (as given, whatever its value, as in Caffe 1.0).
        fraction: what the running sums are multiplied by before each batch is added (moving_average_fraction).
        dtype: element type; for half types the sums are float32.
    """

    in_shape: Ints
    eps: float
    fraction: float
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))

    @property
    def n_channels(self) -> int:
        """Columns of the matrix that is normalised."""
        return self.in_shape[1]

    @property
    def n_rows(self) -> int:
        """Rows of the matrix that is normalised: images times positions."""
        return self.in_shape[0] * prod(self.in_shape[2:])

    @property
    def correction(self) -> float:
        """Factor on a batch's variance before Caffe adds it to the running sum: m / (m - 1), m rows; 1 for one row."""
        return self.n_rows / (self.n_rows - 1) if self.n_rows > 1 else 1.0


@dataclass(frozen=True)
class Fused:
    """The operations fused to a normalisation: y = relu(xn · scale + bias + addend), xn being the normalised x.

    Attributes:
        scale, bias: (C,), of the parameters' type; None: no scale, no bias.
        slope: negative slope of the ReLU; None: no ReLU.
        addend: (rows, C), of x's type, for forward only; None: nothing is added.
    """

    scale: Any = None
    bias: Any = None
    slope: float | None = None
    addend: Any = None


@dataclass(frozen=True)
class FusedDiffs:
    """The arrays that get the gradients of ``Fused``'s scale and bias.

    Attributes:
        scale, bias: (C,), of the parameters' type; None: not wanted.
        overwrite: whether gradients are written instead of added.
    """

    scale: Any = None
    bias: Any = None
    overwrite: bool = False


NOT_FUSED, NO_DIFFS = Fused(), FusedDiffs()
