"""DetectionEvaluate: which detections are right (PASCAL VOC, Everingham et al. 2010, section 4.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.detection.boxes import COLUMNS, Truth, check_shape, read_truth
from scaffe.layers.detection.saved_detections import check_resize, read_sizes, to_pixels
from scaffe.proto.byte_text import path_of

RESULTS = 5  # item, label, score, true positive, false positive
MOST_CLASSES = 1 << 24  # float32 tells their labels apart
NOTHING = -1  # label of a row that says that nothing was detected; item of the rows that count true boxes


@layer_types.register("DetectionEvaluate")
class DetectionEvaluate(NoGradient):
    """Compares detections with the ground truth.

    Bottoms: detections (1, 1, D, 7), as DetectionOutput gives them; ground truth (1, 1, G, 8). Top: (1, 1, R, 5). First
    a row for each class but the background, (-1, label, number of true boxes, -1, -1), difficult ones left out unless
    ``evaluate_difficult_gt``; then a row for each detection, (item, label, score, is right, is wrong). A detection is
    right if the true box of its class that it overlaps most overlaps it by ``overlap_threshold``, and no detection of a
    higher score had that box. It is neither if that box is difficult and difficult ones do not count.

    With ``name_size_file`` boxes are compared as pixels of the original images, which the file names in the order of
    the data set; a batch has as many images as its highest item, of detections or true boxes, says.
    Several ranks compare fractions instead.
    """

    n_bottoms = (2, 2)
    host_only = True
    reshape_always = True
    exact_bottoms = (0, 1)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.detection_evaluate_param
        if not 1 <= p.num_classes <= MOST_CLASSES:
            raise LayerError(f"needs num_classes, at least 1 and at most {MOST_CLASSES}, got {p.num_classes}")
        if not p.overlap_threshold > 0:
            raise LayerError(f"wants overlap_threshold above 0, got {p.overlap_threshold:g}")
        if p.HasField("resize_param"):
            check_resize(p.resize_param)
        sizes = read_sizes(path_of(p.name_size_file))[1] if p.name_size_file else []
        self._sizes = sizes if self.context.n_ranks == 1 else []  # a rank does not know which images it sees
        self._n_seen = 0

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.detection_evaluate_param
        if not bottom[0].ndim or bottom[0].shape[-1] != COLUMNS:
            raise LayerError(f"wants detections (1, 1, D, 7), got shape {bottom[0].shape}")
        check_shape(bottom[1])
        self._classes = [c for c in range(p.num_classes) if c != p.background_label_id]
        self._detections = bottom[0].data.reshape(-1, COLUMNS)
        self._last_item = self._detections[:, 0].max(initial=0)
        self._detections = self._detections[(self._detections[:, :2] != NOTHING).all(axis=1)]
        top[0].reshape((1, 1, len(self._classes) + len(self._detections), RESULTS))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.detection_evaluate_param
        truth = read_truth(bottom[1], p.num_classes, p.background_label_id)
        labels = self._detections[:, 1]
        if (labels == p.background_label_id).any():
            raise LayerError(f"a detection has the background's label, {p.background_label_id}")
        counts = truth.labels[~truth.difficult] if not p.evaluate_difficult_gt else truth.labels
        heads = [[NOTHING, c, (counts == c).sum(), NOTHING, NOTHING] for c in self._classes]
        top[0].data[...] = np.concatenate([np.reshape(heads, (-1, RESULTS)), *self._results(truth)])

    def _results(self, truth: Truth) -> Iterator[np.ndarray]:
        """Rows of results for each item and label, both ascending."""
        found, first = self._detections, self._n_seen
        self._n_seen += 1 + int(max(self._last_item, truth.items.max(initial=0)))
        for item in np.unique(found[:, 0]):
            of_item = found[found[:, 0] == item]
            size = self._sizes[(first + int(item)) % len(self._sizes)] if self._sizes else None
            for label in np.unique(of_item[:, 1]):
                mine = of_item[of_item[:, 1] == label]
                same = truth.of(int(item))
                yield self._of_class(mine, same.boxes[same.labels == label], same.difficult[same.labels == label], size)

    def _of_class(self, found: np.ndarray, boxes: np.ndarray, difficult: np.ndarray,
                  size: tuple[int, int] | None) -> np.ndarray:
        """Results (n, 5) of the detections (n, 7) of one class in one image, against its true boxes (m, 4)."""
        from scaffe.layers.kernels.cpu.boxes import overlaps_of

        p = self.param.detection_evaluate_param
        if len(boxes):
            found = found[np.argsort(-found[:, 2], kind="stable")]
        corners = np.ascontiguousarray(found[:, 3:])
        if size is not None:
            resize = p.resize_param if p.HasField("resize_param") else None
            corners, boxes = to_pixels(corners, *size, resize), to_pixels(boxes, *size, resize)
        right, wrong = np.zeros(len(found)), np.ones(len(found))
        seen = np.zeros(len(boxes), bool)
        for i in range(len(found) if len(boxes) else 0):
            overlaps = overlaps_of(corners[i], boxes, corners.dtype.type(size is not None))
            best = int(np.argmax(overlaps))
            if overlaps[best] < corners.dtype.type(p.overlap_threshold):
                continue
            counts = p.evaluate_difficult_gt or not difficult[best]
            right[i], wrong[i] = counts and not seen[best], counts and seen[best]
            seen[best] |= counts
        return np.column_stack([found[:, :3], right, wrong])
