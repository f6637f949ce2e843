"""Batch normalisation without scale and bias, as Caffe has it (Ioffe and Szegedy 2015)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layers.blob import Blob
from layers.errors import LayerError
from layers.layer import TEST, Layer, layer_types
from layers.rows import Rows


@layer_types.register("BatchNorm")
class BatchNorm(Layer):
    """y = (x - mean) / sqrt(variance + eps) per channel, of the batch in training, of the running sums in testing.

    Blobs (C,), (C,), (1,): running sums of means and of variances (corrected by m / (m - 1)), and the factor that both
    are divided by. All three decay by moving_average_fraction at each forward and never learn by gradients.
    use_global_stats overrides the phase. Behaviour: Caffe 1.0.

    Raises:
        LayerError: a learning rate given for the statistics, or a bottom of other channels than at first.
    """

    recordable = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the statistics, which no learning rate touches."""
        p = self.param.batch_norm_param
        self._uses_sums = p.use_global_stats if p.HasField("use_global_stats") else self.context.phase == TEST
        self._n_channels = bottom[0].shape[1] if bottom[0].ndim > 1 else 1
        for shape in ((self._n_channels,), (self._n_channels,), (1,)):
            self.add_blob(shape, None)
        for i in range(3):
            if len(self.param.param) == i:
                self.param.param.add().lr_mult = 0
            elif self.param.param[i].lr_mult != 0:
                raise LayerError(f"statistics do not learn: param {i} must have lr_mult 0")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Top as the bottom."""
        x = bottom[0]
        if (x.shape[1] if x.ndim > 1 else 1) != self._n_channels:
            raise LayerError(f"has statistics of {self._n_channels} channels, the bottom is {x.shape}")
        if top[0] is not x:
            top[0].reshape(x.shape)
        self._rows = Rows(x, 1) if x.ndim > 1 else None
        shape = (x.n_elems // max(self._n_channels, 1), self._n_channels)
        self._kept = self.context.xp.empty(shape, x.dtype) if top[0] is x else None
        p = self.param.batch_norm_param
        self._plan = self.context.kernels.batch_norm(*shape, p.eps, p.moving_average_fraction, self.context.dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Normalise; in training bring the statistics up to date."""
        x = self._data(bottom[0])
        y, sums = self._data(top[0]), [blob.data_flat for blob in self.blobs]
        if self._uses_sums:
            self._plan.forward_fixed(x, y, *sums, self._kept)
        else:
            self._plan.forward_train(x, y, *sums, self._kept)
        if self._rows is not None:
            self._rows.put_data(y, top[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """gx = (gy - mean(gy) - y mean(gy y)) / sqrt(variance + eps); with fixed statistics gy / sqrt alone."""
        if not propagate_down[0]:
            return
        gy, gx = self._diff(top[0]), self._diff(bottom[0])
        x = self._data(bottom[0]) if self._kept is None else self._kept
        self._plan.backward(x, gy, gx)
        if self._rows is not None:
            self._rows.put_diff(gx, bottom[0])

    def _data(self, blob: Blob) -> np.ndarray:
        return blob.data_flat.reshape(-1, 1) if self._rows is None else self._rows.data(blob)

    def _diff(self, blob: Blob) -> np.ndarray:
        return blob.diff_flat.reshape(-1, 1) if self._rows is None else self._rows.diff(blob)
