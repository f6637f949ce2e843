"""DetectionOutput: from a net's offsets and confidences to the objects it finds (SSD, Liu et al. 2016, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.detection.boxes import COLUMNS, count_priors, decode, read_priors, show_detections
from scaffe.layers.detection.evaluation import SavedDetections
from scaffe.log import warning

Kept = list[tuple[int, np.ndarray]]  # label and prior boxes, the best first, of one image


@layer_types.register("DetectionOutput")
class DetectionOutput(NoGradient):
    """Decodes boxes, and suppresses class by class those that overlap a better one (non-maximum suppression).

    Bottoms: offsets (N, P · L · 4), L being 1 with ``share_location`` and num_classes without; confidences
    (N, P · num_classes); prior boxes (1, 2, 4 P); optionally the images, which are not read. Top: (1, 1, D, 7), a row
    a detection: item in the batch, label, score, xmin, ymin, xmax, ymax, ordered by item, label and falling score. With
    no detection at all there is a row (item, -1, ...) of -1 for each item, as in weiliu89/caffe.

    ``save_output_param`` writes them to files too, in the order of its ``name_size_file``, but not where several ranks
    share the images.
    """

    n_bottoms = (3, 4)
    host_only = True
    reshape_always = True
    exact_bottoms = (2,)
    temporaries = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.detection_output_param
        if p.num_classes < 1:
            raise LayerError("needs num_classes, at least 1")
        check_suppression(p.nms_param)
        saved = SavedDetections.wanted(p.save_output_param)
        if saved and self.context.n_ranks > 1:
            warning(f"layer {self.param.name!r} saves no detections: each of {self.context.n_ranks} ranks sees a part"
                    " of the images; run `test` on one")
            saved = False
        self._saved = SavedDetections(p.save_output_param, p.background_label_id) if saved else None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the top as for one detection. Raises LayerError if the bottoms do not fit the prior boxes."""
        p = self.param.detection_output_param
        check_predictions(bottom, p.num_classes, p.share_location)
        top[0].reshape((1, 1, 1, COLUMNS))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.detection_output_param
        n_items, n_priors = bottom[0].shape[0], count_priors(bottom[2])
        priors, variances = read_priors(bottom[2])
        offsets = np.moveaxis(bottom[0].data.reshape(n_items, n_priors, -1, 4), 2, 1)
        boxes = decode(p.code_type, priors, None if p.variance_encoded_in_target else variances, offsets)
        scores = np.moveaxis(bottom[1].data.reshape(n_items, n_priors, p.num_classes), 2, 1)
        rows = [self._rows(item, boxes[item], scores[item]) for item in range(n_items)]
        if self._saved is not None:
            for of_item in rows:
                self._saved.add(of_item)
        show_detections(top[0], rows, n_items)

    def _rows(self, item: int, boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """One image's detections (D, 7), from boxes (L, P, 4) and scores (num_classes, P)."""
        p = self.param.detection_output_param
        least, kept = float(p.confidence_threshold) if p.HasField("confidence_threshold") else -np.inf, Kept()
        for label in range(p.num_classes):
            if label != p.background_label_id:
                of_label = np.ascontiguousarray(boxes[0 if p.share_location else label])
                kept.append((label, best_boxes(of_label, scores[label], least, p.nms_param)))
        rows = [np.zeros((0, COLUMNS), boxes.dtype)]
        for label, places in keep_best(kept, scores, p.keep_top_k):
            heads = np.stack([np.full(len(places), item), np.full(len(places), label), scores[label, places]], axis=1)
            rows.append(np.concatenate([heads, boxes[0 if p.share_location else label][places]], axis=1))
        return np.concatenate(rows)


def check_predictions(bottom: Sequence[Blob], n_classes: int, share_location: bool) -> None:
    """Raise LayerError unless offsets, confidences and prior boxes, bottoms 0 to 2, belong together."""
    n_priors = count_priors(bottom[2])
    n_items = bottom[0].shape[0] if bottom[0].ndim else 0
    for blob, what, a_prior in ((bottom[0], "offsets", 4 * (1 if share_location else n_classes)),
                                (bottom[1], "confidences", n_classes)):
        if blob.ndim < 2 or blob.shape[0] != n_items or blob.count(1) != n_priors * a_prior:
            raise LayerError(f"wants {what} ({n_items}, {n_priors * a_prior}) for {n_priors} prior boxes and "
                             f"{n_classes} classes, got {blob.shape}")


def check_suppression(p: Any) -> None:
    """Raise LayerError if a NonMaximumSuppressionParameter message has a number out of range."""
    if not p.nms_threshold >= 0:
        raise LayerError(f"wants nms_threshold at least 0, got {p.nms_threshold:g}")
    if not 0 < p.eta <= 1:
        raise LayerError(f"wants eta above 0 and at most 1, got {p.eta:g}")


def best_boxes(boxes: np.ndarray, scores: np.ndarray, least_score: float, p: Any) -> np.ndarray:
    """Non-maximum suppression among the boxes (P, 4), contiguous, of one class whose scores (P,) are above
    ``least_score``, as a NonMaximumSuppressionParameter message says: int64 indices of those that stay, by falling
    score, equal ones in order."""
    from scaffe.layers.kernels.cpu.boxes import suppress

    places = np.flatnonzero(scores > least_score)
    order = places[np.argsort(-scores[places], kind="stable")]
    if p.HasField("top_k") and p.top_k > -1:
        order = order[:p.top_k]
    kept = np.empty(len(order), np.int64)
    of_type = boxes.dtype.type
    return kept[:suppress(boxes, order, of_type(p.nms_threshold), of_type(p.eta), of_type(0), kept)]


def keep_best(kept: Kept, scores: np.ndarray, most: int) -> Kept:
    """The ``most`` detections of the highest score of one image, whatever their class; all if it is below 0."""
    labels = np.concatenate([np.zeros(0, np.int64), *(np.full(len(places), label) for label, places in kept)])
    if most < 0 or len(labels) <= most:
        return kept
    places = np.concatenate([places for _, places in kept])
    chosen = np.argsort(-scores[labels, places], kind="stable")[:most]
    return [(label, places[chosen[labels[chosen] == label]]) for label, _ in kept]
