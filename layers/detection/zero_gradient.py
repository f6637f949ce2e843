"""The base of layers that choose: their tops depend on the bottoms, but no gradient is passed on."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer


class ZeroGradient(Layer):
    """Backward writes zeros, as in the forks, whose nets seldom say ``propagate_down: false``."""

    def allow_force_backward(self, bottom_index: int) -> bool:
        """False for every bottom."""
        return False

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write zeros to the gradients asked for."""
        for blob, wanted in zip(bottom, propagate_down, strict=True):
            if wanted:
                blob.diff_flat[...] = 0
