"""What layers share whose forward can have the ReLU that follows them fused into it."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer


class FusesRelu(Layer):
    """A layer whose ``forward`` takes the slope of a ReLU as one more argument, and then writes the ReLU's output."""

    _fused_slope: float | None = None

    def fuse(self, following: Layer) -> bool:
        """Fuse a ReLU whose gradient can be told from its output. Returns whether it was one, and the first."""
        slope = getattr(following, "relu_slope", None)
        if slope is None or self._fused_slope is not None:
            return False
        self._fused_slope = slope
        return True

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        """Compute the tops' data, with a ReLU of that slope (None: without)."""
        raise NotImplementedError

    def forward_fused(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the ReLU's output in one pass."""
        self.forward(bottom, top, self._fused_slope)
