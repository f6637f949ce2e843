"""MultiBoxLoss: the loss of offsets and classes of boxes matched with objects (SSD, Liu et al. 2016, section 2.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import loss_divisor
from scaffe.layers.base.bases import LossLayer, refuse_gradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.detection.boxes import (
    HARD_EXAMPLE,
    NONE,
    SOFTMAX,
    UNMATCHED,
    Truth,
    check_shape,
    class_loss,
    decode,
    encode,
    location_loss,
    match_boxes,
    mine,
    read_priors,
    read_truth,
)
from scaffe.layers.detection.detection_output import check_predictions, check_suppression

ANY_LABEL = 1 << 31
Match = tuple[int, int, np.ndarray, np.ndarray]  # item, class of the offsets, matches, overlaps
Gradient = tuple[tuple[np.ndarray, ...], np.ndarray]  # places (item, box, class) and the gradient there


@dataclass(frozen=True)
class Positives:
    """The boxes matched with an object, as arrays (M,): their item in the batch, prior box, class whose offsets count
    (0 if all share them), the object's label, and the object's box (M, 4)."""

    items: np.ndarray
    priors: np.ndarray
    classes: np.ndarray
    labels: np.ndarray
    boxes: np.ndarray


@layer_types.register("MultiBoxLoss")
class MultiBoxLoss(LossLayer):
    """(loc_weight · loss of the offsets + loss of the classes) / normalization, of the boxes matched and those mined.

    Bottoms: offsets (N, P · L · 4), L being 1 with ``share_location`` and num_classes without; confidences
    (N, P · num_classes), before softmax or sigmoid; prior boxes (1, 2, 4 P); ground truth (1, 1, G, 8). Top: the loss,
    a scalar. ``loss_param.normalization`` VALID divides by the number of boxes matched. A ``propagate_down`` that is
    false for offsets or confidences leaves their part out of the loss.

    As weiliu89/caffe computes it, but for three things. With ``encode_variance_in_target`` the gradient is that of the
    loss before it is divided by the variances there too. LOGISTIC without mining fills the targets of all images. And
    with ``map_object_to_agnostic`` mining takes the mapped label.
    """

    is_normalized = True
    n_bottoms = (4, 4)
    host_only = True
    exact_bottoms = (2, 3)
    gradient_bottoms = (0, 1)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.multibox_loss_param
        self._check_options()
        self.temporaries, self.persistent_temporaries = (8, 2) if p.mining_type == NONE else (2, 0)
        self._wanted = list(self.param.propagate_down[:2]) or [True, True]
        nowhere = tuple(np.zeros((3, 0), np.int64))
        self._location: Gradient = nowhere, np.zeros((0, 4))
        self._classes: Gradient = nowhere, np.zeros((0, p.num_classes))

    def _check_options(self) -> None:
        p = self.param.multibox_loss_param
        check_suppression(p.nms_param)
        if p.num_classes < 1:
            raise LayerError("needs num_classes, at least 1")
        if p.HasField("do_neg_mining") and p.do_neg_mining != (p.mining_type != NONE):
            raise LayerError("do_neg_mining and mining_type say different things; leave do_neg_mining out")
        if p.mining_type != NONE and not p.share_location:
            raise LayerError("mines negatives only with share_location; give mining_type: NONE")
        if p.conf_loss_type == SOFTMAX and p.background_label_id >= p.num_classes:
            raise LayerError(f"background_label_id {p.background_label_id} is not one of {p.num_classes} classes")
        if p.map_object_to_agnostic and p.num_classes != 2:
            raise LayerError(f"map_object_to_agnostic wants num_classes 2, got {p.num_classes}")
        if p.map_object_to_agnostic and p.background_label_id != 0:
            raise LayerError(f"map_object_to_agnostic wants background_label_id 0, got {p.background_label_id}")
        if p.mining_type == HARD_EXAMPLE and p.sample_size < 1:
            raise LayerError(f"wants sample_size at least 1, got {p.sample_size}")
        if not (isfinite(p.neg_pos_ratio) and p.neg_pos_ratio >= 0):
            raise LayerError(f"wants neg_pos_ratio at least 0, got {p.neg_pos_ratio:g}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.multibox_loss_param
        check_predictions(bottom, p.num_classes, p.share_location)
        check_shape(bottom[3])
        top[0].reshape(())

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.multibox_loss_param
        n_items, self._priors = bottom[0].shape[0], read_priors(bottom[2])
        n_priors = len(self._priors[0])
        offsets = bottom[0].data.reshape(n_items, n_priors, -1, 4)
        scores = bottom[1].data.reshape(n_items, n_priors, p.num_classes)
        truth = read_truth(bottom[3], ANY_LABEL if p.map_object_to_agnostic else p.num_classes, p.background_label_id,
                           p.use_difficult_gt)
        matches = [(item, *match) for item in range(n_items) for match in self._matches(truth.of(item), offsets[item])]
        negatives = np.zeros((n_items, n_priors), bool)
        if p.mining_type != NONE:
            matches = self._mine(matches, truth, offsets, scores, negatives)
        found = self._positives(matches, truth)
        self._divisor = loss_divisor(self.param.loss_param, n_items, n_priors, len(found.items))
        total = 0.0
        if self._wanted[0]:
            total += p.loc_weight * self._compare_locations(found, offsets)
        if self._wanted[1]:
            total += self._compare_classes(found, scores, negatives)
        top[0].data[...] = total / self._divisor

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Write the gradients of offsets and confidences; those of boxes that do not count are 0."""
        refuse_gradient(propagate_down, [2, 3])
        scale = float(top[0].diff) / self._divisor
        weights = self.param.multibox_loss_param.loc_weight, 1
        n_items, n_priors = bottom[0].shape[0], len(self._priors[0])
        for blob, part, wanted, weight in zip(bottom, (self._location, self._classes), propagate_down, weights,
                                              strict=False):
            if wanted:
                places, gradient = part
                diff = np.zeros((n_items, n_priors, blob.count(1) // n_priors), blob.dtype)
                diff.reshape(*diff.shape[:2], -1, gradient.shape[1])[places] = scale * weight * gradient
                blob.diff[...] = diff.reshape(blob.shape)

    # -- which boxes count ---------------------------------------------------------------------------------
    def _matches(self, truth: Truth, offsets: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(class of the offsets, matches, overlaps) for one image; nothing without objects."""
        p, priors = self.param.multibox_loss_param, self._priors[0]
        if not len(truth.labels):
            return
        classes = [0] if p.share_location else [c for c in range(p.num_classes) if c != p.background_label_id]
        if p.use_prior_for_matching:
            matches, overlaps = match_boxes(priors, truth.boxes, p)
            of_match = np.where(matches >= 0, truth.labels[np.maximum(matches, 0)], -1)
            for c in classes:
                yield c, matches if p.share_location else np.where(of_match == c, matches, UNMATCHED), overlaps
            return
        for c in classes:
            mine_too = np.flatnonzero(p.share_location | (truth.labels == c))
            matches, overlaps = match_boxes(self._decode(offsets[:, c]), truth.boxes[mine_too], p)
            matches[matches >= 0] = mine_too[matches[matches >= 0]]
            yield c, matches, overlaps

    def _decode(self, offsets: np.ndarray) -> np.ndarray:
        p = self.param.multibox_loss_param
        priors, variances = self._priors
        return decode(p.code_type, priors, None if p.encode_variance_in_target else variances, offsets)

    def _positives(self, matches: list[Match], truth: Truth) -> Positives:
        """The boxes matched, image after image, class after class."""
        parts = [np.zeros((4, 0), np.int64)]
        for item, c, match, _ in matches:
            priors = np.flatnonzero(match >= 0)
            rows = np.flatnonzero(truth.items == item)[match[priors]]
            parts.append(np.stack([np.full(len(priors), item), priors, np.full(len(priors), c), rows]))
        items, priors, classes, rows = np.concatenate(parts, axis=1)
        p, labels = self.param.multibox_loss_param, truth.labels[rows]
        if p.map_object_to_agnostic:
            labels = np.full_like(labels, p.background_label_id + 1)
        return Positives(items, priors, classes, labels, truth.boxes[rows])

    def _mine(self, matches: list[Match], truth: Truth, offsets: np.ndarray,
              scores: np.ndarray, negatives: np.ndarray) -> list[Match]:
        """The matches that count; marks the unmatched boxes that count in ``negatives`` (N, P)."""
        p = self.param.multibox_loss_param
        left = []
        for item, c, match, overlaps in matches:
            found = self._positives([(item, c, match, overlaps)], truth)
            labels = np.full(len(match), p.background_label_id)
            labels[found.priors] = found.labels
            loss, _ = class_loss(p.conf_loss_type, scores[item], self._one_hot(labels))
            if p.mining_type == HARD_EXAMPLE:
                loss[found.priors] += location_loss(p.loc_loss_type, self._difference(found, offsets))[0].sum(axis=1)
            by_prior = p.use_prior_for_nms or not p.HasField("nms_param")
            boxes = self._priors[0] if by_prior else self._decode(offsets[item, :, c])
            match, negative = mine(p, loss, match, overlaps, np.ascontiguousarray(boxes))
            negatives[item, negative] = True
            left.append((item, c, match, overlaps))
        return left

    # -- the two losses ------------------------------------------------------------------------------------
    def _difference(self, found: Positives, offsets: np.ndarray) -> np.ndarray:
        """Predicted minus true offsets, (M, 4), in units of the variances."""
        p = self.param.multibox_loss_param
        priors, variances = (x[found.priors] for x in self._priors)
        in_target = None if p.encode_variance_in_target else variances
        forecast = offsets[found.items, found.priors, found.classes]
        difference: np.ndarray = forecast - encode(p.code_type, priors, in_target, found.boxes)
        if p.encode_variance_in_target:
            difference = difference / variances
        if p.bp_inside:
            boxes = priors if p.use_prior_for_matching else decode(p.code_type, priors, in_target, forecast)
            difference[(boxes < 0) | (boxes > 1)] = 0
        return difference

    def _compare_locations(self, found: Positives, offsets: np.ndarray) -> float:
        loss, slope = location_loss(self.param.multibox_loss_param.loc_loss_type, self._difference(found, offsets))
        self._location = (found.items, found.priors, found.classes), slope
        return float(loss.sum(dtype=np.float64))

    def _compare_classes(self, found: Positives, scores: np.ndarray, negatives: np.ndarray) -> float:
        """The loss of the classes: of all boxes without mining, else of those matched and those mined."""
        p = self.param.multibox_loss_param
        labels = np.full(negatives.shape, p.background_label_id if p.conf_loss_type == SOFTMAX else ANY_LABEL)
        labels[negatives] = p.background_label_id
        labels[found.items, found.priors] = found.labels
        counts = negatives.copy() if p.mining_type != NONE else np.ones_like(negatives)
        counts[found.items, found.priors] = True
        places = np.nonzero(counts)
        loss, slope = class_loss(p.conf_loss_type, scores[places], self._one_hot(labels[places]))
        self._classes = (*places, np.zeros(len(places[0]), np.int64)), slope
        return float(loss.sum(dtype=np.float64))

    def _one_hot(self, labels: np.ndarray) -> np.ndarray:
        """(n, classes), 1 at each label that is a class."""
        one_hot: np.ndarray = (labels[:, None] == np.arange(self.param.multibox_loss_param.num_classes)).astype(
            self._priors[0].dtype)
        return one_hot
