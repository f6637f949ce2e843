"""What the kernels of batch normalisation are told: pure values, the same on every device."""

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
        in_shape: logical (N, C, spatial...); statistics are of the C channels.
        eps: added to the variance (Caffe 1.0: as given, whatever its value).
        fraction: what is left of the running sums at each step.
        dtype: element type; sums are float32 beside half types.
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
        """From a batch's variance to the one that Caffe sums up: m / (m - 1)."""
        return self.n_rows / (self.n_rows - 1) if self.n_rows > 1 else 1.0


@dataclass(frozen=True)
class Fused:
    """What is fused to a normalisation: y = relu(xn · scale + bias).

    Attributes:
        scale, bias: (C,), of the parameters' type; None is 1, 0.
        slope: ReLU's below 0; None is no ReLU.
    """

    scale: Any = None
    bias: Any = None
    slope: float | None = None


@dataclass(frozen=True)
class FusedDiffs:
    """Where the gradients of ``Fused``'s scale and bias go.

    Attributes:
        scale, bias: (C,), of the parameters' type; None where nobody wants them.
        overwrite: written, not added.
    """

    scale: Any = None
    bias: Any = None
    overwrite: bool = False


NOT_FUSED, NO_DIFFS = Fused(), FusedDiffs()
