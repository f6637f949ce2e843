"""What layers share that compute a ReLU behind them in the same pass."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer


class TakesRelu(Layer):
    """A layer whose ``run`` takes the slope of an in-place ReLU behind it, or None where there is none."""

    _slope: float | None = None

    def absorb(self, follower: Layer) -> bool:
        """ReLU is computed in the same pass."""
        slope = getattr(follower, "relu_slope", None)
        if slope is None or self._slope is not None:
            return False
        self._slope = slope
        return True

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Without the follower."""
        self.run(bottom, top, None)

    def forward_absorbed(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """With the follower's ReLU."""
        self.run(bottom, top, self._slope)

    def run(self, bottom: Sequence[Blob], top: Sequence[Blob], slope: float | None) -> None:
        """Compute the tops' data."""
        raise NotImplementedError
