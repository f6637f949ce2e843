"""SmoothL1Loss (Fast R-CNN, Girshick 2015, equation 3) and online hard example mining (R-FCN, Dai et al. 2016, section
2): the choice of regions, and their losses.

Formulas: rbgirshick/caffe-fast-rcnn (2 or 4 bottoms), weiliu89/caffe and daijifeng001/caffe-rfcn (2 or 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import loss_divisor, read_labels
from scaffe.layers.base.bases import LossLayer, ZeroGradient, as_four_axes
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.loss.softmax import SoftmaxWithLoss


@layer_types.register("SmoothL1Loss")
class SmoothL1Loss(LossLayer):
    """The sum of v f(u (a - b)) over all elements, divided by N.

    f(x) = (sigma x)² / 2 where |x| < 1 / sigma², and |x| - 1 / (2 sigma²) elsewhere.

    Bottoms: predictions a and targets b, (N, ...); optionally inside weights u and then outside weights v, each of
    their shape, 1 where not given. Top: the loss, a scalar. ``loss_param``, if given, says what the sum is divided by.

    Raises:
        LayerError: bottoms of different shapes, axes of length 1 at the end left out; a sigma that is not above 0.
    """

    is_normalized = True
    temporaries, persistent_temporaries = 6, 1
    n_bottoms = (2, 4)
    exact_bottoms = (1, 2, 3)
    gradient_bottoms = (0, 1)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._squared = self.param.smooth_l1_loss_param.sigma ** 2
        if not self._squared > 0:
            raise LayerError(f"sigma must be above 0, got {self.param.smooth_l1_loss_param.sigma:g}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if len({as_four_axes(blob.shape) for blob in bottom}) > 1:
            raise LayerError("wants bottoms of one shape, got " + ", ".join(str(blob.shape) for blob in bottom))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].data[...] = self._losses(bottom).sum() / self._divisor(bottom[0])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradients, v u f'(u (a - b)) · loss weight / N for a, its negative for b; weights get zeros."""
        scale = float(top[0].diff) / self._divisor(bottom[0])
        for blob, sign, wanted in zip(bottom, (1, -1, 0, 0), propagate_down, strict=False):
            if wanted and sign:
                blob.diff[...] = (sign * scale * self._slopes(bottom)).reshape(blob.shape)
            elif wanted:
                blob.diff_flat[...] = 0

    def _losses(self, bottom: Sequence[Blob]) -> np.ndarray:
        """v f(u (a - b)) of each element, in the predictions' shape."""
        self._away = bottom[0].data - _like(bottom[0], bottom[1])
        if len(bottom) > 2:
            self._away *= _like(bottom[0], bottom[2])
        far, limit = np.abs(self._away), 1 / self._squared
        losses: np.ndarray = np.where(far < limit, 0.5 * self._squared * far**2, far - 0.5 * limit)
        if len(bottom) > 3:
            losses *= _like(bottom[0], bottom[3])
        return losses

    def _slopes(self, bottom: Sequence[Blob]) -> np.ndarray:
        """The derivative of each element's loss with respect to a."""
        slopes: np.ndarray = np.clip(self._squared * self._away, -1, 1)
        for weights in bottom[2:]:
            slopes *= _like(bottom[0], weights)
        return slopes

    def _divisor(self, predictions: Blob) -> float:
        p, n_items = self.param.loss_param, predictions.shape[0]
        if p.HasField("normalization") or p.HasField("normalize"):
            n_positions = n_items * predictions.count(2)
            return loss_divisor(p, n_items, predictions.count(2), n_positions)
        return float(max(n_items, 1))


@layer_types.register("SmoothL1LossOHEM")
class SmoothL1LossOhem(SmoothL1Loss):
    """SmoothL1Loss with sigma 1 that also shows the loss of each position (R-FCN, Dai et al. 2016, section 2).

    Bottoms: predictions and targets, (N, C, H, W) or less; optionally weights u. Tops: the loss, a scalar, divided as
    ``loss_param`` says, by default by the number of positions; optionally the losses summed over C, (N, 1, H, W).
    """

    n_bottoms = (2, 3)
    n_tops = (1, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        n_items, _, *space = as_four_axes(bottom[0].shape)
        if len(top) > 1:
            top[1].reshape((n_items, 1, *space))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        losses = self._losses(bottom)
        top[0].data[...] = losses.sum() / self._divisor(bottom[0])
        if len(top) > 1:
            top[1].data[...] = losses.reshape(as_four_axes(losses.shape)).sum(axis=1, keepdims=True)

    def _divisor(self, predictions: Blob) -> float:
        n_items, n_inner = predictions.shape[0], predictions.count(2)
        return loss_divisor(self.param.loss_param, n_items, n_inner, n_items * n_inner)


def _like(shape_of: Blob, values: Blob) -> np.ndarray:
    """The values in another blob's shape."""
    return values.data.reshape(shape_of.shape)


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
