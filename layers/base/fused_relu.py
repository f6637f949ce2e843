"""The base of layers that can compute the ReLU that follows them in their own forward pass."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer


class FusesRelu(Layer):
    """A layer whose ``forward`` takes the negative slope of a ReLU as an optional argument and applies that ReLU."""

    _fused_slope: float | None = None

    def fuse(self, following: Layer) -> bool:
        """Fuse the following layer if it is a ReLU, slope not negative, and the first. Returns whether it was fused."""
        slope = getattr(following, "relu_slope", None)
        if slope is None or self._fused_slope is not None:
            return False
        self._fused_slope = slope
        return True

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        """Compute the tops' data, followed by a ReLU of that negative slope (None: no ReLU)."""
        raise NotImplementedError

    def forward_fused(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute this layer and the fused ReLU in one pass; ``top`` gets the ReLU's output."""
        self.forward(bottom, top, self._fused_slope)
