"""Layers that compute by sums over a replica's ranks: batch norm; losses, accuracy and draws of a part of a blob."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.base.axes import loss_divisor, read_labels
from scaffe.layers.base.bases import LossLayer
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import Layer
from scaffe.layers.base.random import Stream
from scaffe.layers.loss.accuracy import Accuracy, fractions
from scaffe.layers.normalization.batch_norm import BatchNorm
from scaffe.training.partition.group import Group
from scaffe.training.partition.sharding import AXES


class SharedNorm(BatchNorm):
    """BatchNorm in training with the mean and variance of the whole replica's batch (Ioffe and Szegedy 2015).

    The ranks exchange sums of x and x^2 forward, of gy and gy y backward: two numbers a channel, in float64.
    Bottom and top: (own images, C, ...) or (G, C, own rows, W). Nothing is fused with it.
    """

    def __init__(self, param: Any, context: Context, group: Group) -> None:
        super().__init__(param, context)
        self._group = group

    def fuse(self, following: Any) -> bool:
        return False

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if top[0] is not bottom[0]:
            top[0].reshape(bottom[0].shape)
        self._others = (0, *range(2, bottom[0].ndim))  # the axes that statistics are taken over

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].data
        sums = np.stack([x.sum(self._others, dtype=np.float64), np.square(x, dtype=np.float64).sum(self._others),
                         np.full(x.shape[1], x.size / x.shape[1])])
        self._group.sum(sums)
        self._count = float(sums[2, 0])
        mean = sums[0] / self._count
        variance = np.maximum(sums[1] / self._count - mean * mean, 0)
        self._scale = _spread(1 / np.sqrt(variance + self.param.batch_norm_param.eps), x)
        self._normalized = (x - _spread(mean, x)) * self._scale
        top[0].data[...] = self._normalized
        fraction = self.param.batch_norm_param.moving_average_fraction
        unbiased = self._count / max(self._count - 1, 1)
        for blob, new in zip(self.blobs, (mean, variance * unbiased, 1), strict=True):
            blob.data[...] = blob.data * fraction + new

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """gx = (gy - mean(gy) - y mean(gy y)) / sqrt(variance + eps)."""
        if not propagate_down[0]:
            return
        gy, y = top[0].diff, self._normalized
        sums = np.stack([gy.sum(self._others, dtype=np.float64),
                         np.multiply(gy, y, dtype=np.float64).sum(self._others)])
        self._group.sum(sums)
        mean, slope = (_spread(total / self._count, y) for total in sums)
        bottom[0].diff[...] = (gy - mean - y * slope) * self._scale


def _spread(numbers: np.ndarray, x: np.ndarray) -> np.ndarray:
    return numbers.astype(x.dtype).reshape(1, -1, *[1] * (x.ndim - 2))


def labels_here(labels: np.ndarray, own: slice) -> tuple[np.ndarray, np.ndarray]:
    """The images whose labels are among a rank's own classes, and the columns of these labels' scores there.
    ``labels``: (G,), integers."""
    here = np.flatnonzero((labels >= own.start) & (labels < own.stop))
    return here, labels[here] - own.start


class _ByClasses(Layer):
    """What both layers know. ``n_classes``: all of them."""

    def __init__(self, param: Any, context: Context, group: Group, n_classes: int) -> None:
        super().__init__(param, context)
        self._group, self._n_classes, self._own = group, n_classes, group.columns(n_classes)


class AccuracyByClasses(_ByClasses, Accuracy):
    """The layer's fractions of all images, the same on every rank.

    The ranks exchange each image's label's score, and how many of their own classes score as high.
    Bottoms: scores (G, own classes); labels of all images. Tops: as Accuracy's.
    """

    def all_classes(self, n_here: int) -> int:
        return self._n_classes

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if len(top) > 1:
            top[1].reshape((self._n_classes,))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the fractions. Raises LayerError for a label out of range."""
        scores = bottom[0].data
        labels, counts = read_labels(bottom[1].data, self._n_classes, self.ignored)
        here, column = labels_here(labels, self._own)
        true = np.zeros(len(scores), scores.dtype)
        true[here] = scores[here, column]
        self._group.sum(true)
        as_high = np.count_nonzero(~(scores < true[:, None]), axis=1).astype(np.float64)
        self._group.sum(as_high)
        right = as_high - 1 < self.param.accuracy_param.top_k
        fractions(right[counts], labels[counts], top)


LEAST = float(np.finfo(np.float32).tiny)  # Caffe's FLT_MIN: the least probability whose logarithm it takes


class LossByClasses(_ByClasses, LossLayer):
    """SoftmaxWithLoss where each rank has some classes' scores of all images; scores are never gathered.

    The ranks exchange each image's largest score, the sum of its exponentials and its label's score. Bottoms: scores
    (G, own classes); labels of all images. Top: the loss, the same on every rank.
    """

    def __init__(self, param: Any, context: Context, group: Group, n_classes: int) -> None:
        super().__init__(param, context, group, n_classes)
        loss = param.loss_param
        self._ignored = loss.ignore_label if loss.HasField("ignore_label") else None

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the loss, and the probabilities of own classes."""
        scores = bottom[0].data
        labels, counts = read_labels(bottom[1].data, self._n_classes, self._ignored)
        largest = scores.max(1)
        self._group.max(largest)
        self._probabilities = np.exp(scores - largest[:, None])
        self._here, self._column = labels_here(labels, self._own)
        sums = np.zeros((2, len(scores)), np.float64)  # of the exponentials; the label's score below the largest
        sums[0] = self._probabilities.sum(1, dtype=np.float64)
        sums[1, self._here] = scores[self._here, self._column] - largest[self._here]
        self._group.sum(sums)
        self._probabilities /= sums[0].astype(scores.dtype)[:, None]
        self._counts = counts
        self._divisor = loss_divisor(self.param.loss_param, len(scores), 1, int(counts.sum()))
        losses = np.minimum(np.log(sums[0]) - sums[1], -np.log(LEAST))
        top[0].data[...] = losses[counts].sum() / self._divisor

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write own scores' gradient: (probability - [1 at the label]) · loss weight / divisor, 0 where ignored."""
        if propagate_down[0]:
            gradient = bottom[0].diff
            gradient[...] = self._probabilities
            gradient[self._here, self._column] -= 1
            gradient *= (self._counts * (float(top[0].diff) / self._divisor)).astype(gradient.dtype)[:, None]


BY_CLASS = {"SoftmaxWithLoss": LossByClasses, "Accuracy": AccuracyByClasses}


class SharedDraws:
    """Draws of a part of a blob: those that one rank with the whole batch would take for it (Dropout's masks).

    All ranks draw the numbers of all images from the same stream, and each takes its own. Image j of rank r of all
    ranks is image j n_ranks + r of the batch, as readers share it.

    Args:
        replicas: the replica's number, and how many there are.
        cut: how it is cut, a key of AXES; None where it has own images.
        length: of the whole blob along the axis that is cut.
        batch: images of all ranks, if these share them out unevenly; else 0.
    """

    def __init__(self, stream: Stream, group: Group, replicas: tuple[int, int], bottom: Blob, cut: str | None,
                 length: int, batch: int = 0) -> None:
        self._batch = batch
        self._stream, self._group, self._bottom, self._cut, self._length = stream, group, bottom, cut, length
        self._replica, self._n_replicas = replicas

    def draw(self, n_elems: int) -> np.ndarray:
        """The numbers of the blob's elements, uint32 (n_elems,), in Caffe's order."""
        n_ranks, (n_images, *image) = self._group.n_ranks, self._bottom.shape
        if self._cut is not None:
            n_images //= n_ranks
            image[AXES[self._cut] - 1] = self._length
        whole = self._of_replica(n_images, image)
        if self._cut is None:
            return whole[:, self._group.rank].reshape(-1)
        own = np.moveaxis(whole, AXES[self._cut] + 1, 2)[:, :, self._group.columns(self._length)]
        return np.moveaxis(own, 2, AXES[self._cut] + 1).swapaxes(0, 1).reshape(-1)

    def _of_replica(self, n_images: int, image: Sequence[int]) -> np.ndarray:
        n_ranks = self._group.n_ranks
        n_all = n_ranks * self._n_replicas
        most, own = -(-self._batch // n_all), len(range(self._replica * n_ranks, self._batch, n_all))
        a_row = max(n_images // own, 1) if own else 1  # of a blob that has several rows for each image
        shape = most * a_row or n_images, self._n_replicas, n_ranks
        n_drawn = self._batch if own and a_row == 1 else prod(shape)  # uneven: the last row is some replicas' alone
        numbers = np.zeros((*shape, *image), np.uint32)
        numbers.reshape(-1, *image)[:n_drawn] = self._stream.draw(n_drawn * prod(image)).reshape(-1, *image)
        return numbers[:n_images, self._replica]
