"""ContinuationIndicator: where sequences begin, for LSTM layers (forks for text lines)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.neuron import NoGradient


@layer_types.register("ContinuationIndicator")
class ContinuationIndicator(NoGradient):
    """0 at the first step of every sequence and 1 at the others; with ``flag`` 1 at all.

    Bottom: none, or (batch_size,) numbers; where one is 1, the sequence goes on from the batch before, so that its
    first step is 1 too. Top: (time_step, batch_size).
    """

    n_bottoms = (0, 1)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top. Raises LayerError if a length is missing, or the bottom does not have a number a sequence."""
        p = self.param.continuation_indicator_param
        if min(p.time_step, p.batch_size) < 1:
            raise LayerError(f"wants time_step and batch_size of at least 1, got {p.time_step} and {p.batch_size}")
        if bottom and bottom[0].n_elems != p.batch_size:
            raise LayerError(f"wants {p.batch_size} numbers, got shape {bottom[0].shape}")
        top[0].reshape((p.time_step, p.batch_size))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write the indicators."""
        top[0].data[...] = 1
        if not self.param.continuation_indicator_param.flag:
            top[0].data[0] = np.abs(bottom[0].data.reshape(-1) - 1) <= 0.01 if bottom else 0
