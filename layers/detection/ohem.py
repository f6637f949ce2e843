"""Online hard example mining (R-FCN, Dai et al. 2016, section 2): the choice of regions, and their softmax losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import read_labels
from scaffe.layers.base.bases import ZeroGradient, as_four_axes
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.loss.softmax import SoftmaxWithLoss


@layer_types.register("BoxAnnotatorOHEM")
class BoxAnnotatorOhem(ZeroGradient):
    """Labels and box weights of the ``roi_per_img`` regions of each image with the largest losses; others do not count.

    Bottoms: regions (R, 5, H, W), their first channel the item in the batch; losses and labels, both (R, 1, H, W); box
    weights (R, C, H, W). Axes of length 1 at the end may be left out.
    Tops: labels (R, 1, H, W), ``ignore_label`` for those that do not count; box weights (R, C, H, W), then 0.
    Of regions with equal losses those that come first count.
    """

    n_bottoms = (4, 4)
    n_tops = (2, 2)
    host_only = True
    exact_bottoms = (0, 1, 2, 3)
    temporaries = 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops. Raises LayerError if the bottoms' shapes do not fit together, or roi_per_img is 0."""
        if self.param.box_annotator_ohem_param.roi_per_img < 1:
            raise LayerError("roi_per_img must be above 0")
        shapes = [as_four_axes(blob.shape) for blob in bottom]
        n_regions, _, *space = shapes[0]
        wanted = [(n_regions, n_channels, *space) for n_channels in (5, 1, 1, shapes[3][1])]
        if shapes != wanted:
            raise LayerError("wants regions (R, 5, H, W), losses and labels (R, 1, H, W) and weights (R, C, H, W), got "
                             + ", ".join(str(blob.shape) for blob in bottom))
        top[0].reshape(wanted[2])
        top[1].reshape(wanted[3])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, shape = self.param.box_annotator_ohem_param, as_four_axes(bottom[0].shape)
        items = bottom[0].data.reshape(shape)[:, 0].reshape(-1).astype(np.int64)
        if items.size and items.min() < 0:
            raise LayerError(f"regions name item {items.min()} of a batch")
        chosen = hardest(bottom[1].data.reshape(-1), items, p.roi_per_img).reshape(top[0].shape)
        top[0].data[...] = np.where(chosen, bottom[2].data.reshape(top[0].shape), p.ignore_label)
        top[1].data[...] = np.where(chosen, bottom[3].data.reshape(top[1].shape), 0)


def hardest(losses: np.ndarray, items: np.ndarray, n_per_item: int) -> np.ndarray:
    """Which regions, booleans (n,), are among the ``n_per_item`` of their item, int64 (n,), with the largest losses
    (n,); equal ones in order."""
    chosen = np.zeros(len(losses), bool)
    order = np.argsort(-losses, kind="stable")
    for item in np.unique(items):
        chosen[order[items[order] == item][:n_per_item]] = True
    return chosen


LEAST_PROBABILITY = np.finfo(np.float32).tiny  # Caffe's FLT_MIN


@layer_types.register("SoftmaxWithLossOHEM")
class SoftmaxWithLossOhem(SoftmaxWithLoss):
    """SoftmaxWithLoss with a third top: the loss of each position, of the labels' shape, 0 where the label is ignored.

    Bottoms and the first two tops are those of SoftmaxWithLoss. Gradients of the second and third top are not used.
    """

    n_tops = (1, 3)
    recordable = False
    host_only = True
    temporaries, persistent_temporaries = 2, 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if len(top) > 2:
            top[2].reshape(bottom[1].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().forward(bottom, top)
        if len(top) < 3:
            return
        probabilities = self._rows.data(self._output)
        labels, counts = read_labels(bottom[1].data, self._rows.n_columns, self._ignored)
        right = np.maximum(probabilities[np.arange(len(labels)), labels], LEAST_PROBABILITY)
        top[2].data[...] = np.where(counts, -np.log(right), 0).reshape(top[2].shape)
