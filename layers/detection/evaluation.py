"""DetectionEvaluate: which detections are right (PASCAL VOC, Everingham et al. 2010, section 4.2); and detections
written to files, with boxes in pixels of the original images (weiliu89/caffe, bbox_util.cpp)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.atomic_files import make_folder, write_whole
from scaffe.errors import LayerError
from scaffe.input_files import read_text_input
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import layer_types
from scaffe.layers.detection.boxes import COLUMNS, Truth, check_shape, read_truth
from scaffe.proto import caffe_pb2
from scaffe.proto.byte_text import path_of
from scaffe.proto.text import ProtoError, read_message

WARP, FIT_SMALL_SIZE, FIT_LARGE_SIZE_AND_PAD = 1, 2, 3  # ResizeParameter.Resize_mode


def read_sizes(path: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Names, heights and widths of images, from a text file: ``name height width`` a line. Raises LayerError if it is
    missing or empty, or a line is not of that form."""
    try:
        lines = read_text_input(path, "surrogateescape").splitlines()
    except OSError as error:
        raise LayerError(f"name_size_file {path}: {error.strerror or error}") from None
    names, sizes = [], []
    for number, line in enumerate(lines, 1):
        words = line.rsplit(maxsplit=2)
        if not words:
            continue
        if len(words) != 3 or not all(word.isascii() and word.isdigit() and int(word) for word in words[1:]):
            raise LayerError(f"name_size_file {path}:{number}: expected 'name height width', found {line[:80]!r}")
        names.append(words[0])
        sizes.append((int(words[1]), int(words[2])))
    if not names:
        raise LayerError(f"name_size_file {path}: the file is empty")
    return names, sizes


def check_resize(resize: Any) -> None:
    """Raise LayerError unless a ResizeParameter message has a height and a width."""
    if not resize.height or not resize.width:
        raise LayerError(f"resize_param wants height and width above 0, got {resize.height} and {resize.width}")


def to_pixels(boxes: np.ndarray, height: int, width: int, resize: Any = None) -> np.ndarray:
    """Boxes (n, 4), in fractions of the net's input, as pixels of the original image, clipped to it. ``resize`` is the
    ResizeParameter message by which the input was made of the image; None: it was warped."""
    extent = np.array([width, height, width, height], boxes.dtype)
    if resize is not None and resize.resize_mode == FIT_SMALL_SIZE and resize.height_scale and resize.width_scale:
        scale = [resize.width_scale, resize.height_scale] * 2
        scaled: np.ndarray = np.clip(boxes * np.array(scale, boxes.dtype), 0, extent)
        return scaled
    if resize is not None and resize.resize_mode == FIT_LARGE_SIZE_AND_PAD:
        pad_x, pad_y = padding(height, width, resize)
        start = np.array([pad_x / resize.width, pad_y / resize.height] * 2, boxes.dtype)
        boxes = (boxes - start) / (1 - 2 * start)
    inside: np.ndarray = np.clip(boxes, 0, 1) * extent
    return inside


def padding(height: int, width: int, resize: Any) -> tuple[float, float]:
    """Columns left and rows above an image that is resized to fit into height and width of ``resize``, and padded."""
    aspect = width / height
    if aspect > resize.width / resize.height:
        return 0.0, (resize.height - resize.width / aspect) / 2
    return (resize.width - resize.height * aspect) / 2, 0.0


FORMATS = ("VOC", "COCO", "ILSVRC")
Found = tuple[str, int, float, list[float]]  # image, label, score, x, y, width, height in pixels


class SavedDetections:
    """Collects the detections of one image after another, and writes them when all images of a test are done, as a
    SaveOutputParameter message says for which ``wanted`` holds; the label ``background`` has no file.

    VOC: a file for each class, ``name score xmin ymin xmax ymax`` a line, in whole pixels. ILSVRC: one file, with the
    label after the name. COCO: one file of JSON: image_id, category_id, bbox (x, y, width, height) and score of
    each."""

    def __init__(self, p: Any, background: int) -> None:
        if p.output_format not in FORMATS:
            raise LayerError(f"output_format {p.output_format!r} is unknown; known: {', '.join(FORMATS)}")
        if p.HasField("resize_param"):
            check_resize(p.resize_param)
        try:
            items = read_message(path_of(p.label_map_file), caffe_pb2.LabelMap).item
        except ProtoError as error:
            raise LayerError(str(error)) from None
        self._p, self._names = p, {item.label: path_of(item.name) for item in items if item.label != background}
        self._images, self._sizes = read_sizes(path_of(p.name_size_file))
        self._n_images = p.num_test_image if p.HasField("num_test_image") else len(self._images)
        if not 1 <= self._n_images <= len(self._images):
            raise LayerError(f"wants num_test_image from 1 to {len(self._images)}, the images of {p.name_size_file}, "
                             f"got {self._n_images}")
        self._n_seen = 0
        self._found: list[Found] = []

    @staticmethod
    def wanted(p: Any) -> bool:
        """Whether a message asks for files: it names a folder, and the files of labels and of sizes."""
        return bool(p.output_directory and p.label_map_file and p.name_size_file)

    def add(self, rows: np.ndarray) -> None:
        """Take the detections (n, 7) of the next image. Raises LayerError if a label has no name."""
        resize = self._p.resize_param if self._p.HasField("resize_param") else None
        image = self._images[self._n_seen]
        boxes = to_pixels(rows[:, 3:].astype(np.float64), *self._sizes[self._n_seen], resize)
        for (label, score), (x0, y0, x1, y1) in zip(rows[:, 1:3].tolist(), boxes.tolist(), strict=True):
            if int(label) not in self._names:
                raise LayerError(f"{self._p.label_map_file}: has no name of label {int(label)}")
            place = [round(value, 2) for value in (x0, y0, x1 - x0, y1 - y0)]
            self._found.append((image, int(label), score, place))
        self._n_seen += 1
        if self._n_seen < self._n_images:
            return
        folder, prefix = Path(path_of(self._p.output_directory)), path_of(self._p.output_name_prefix)
        make_folder(folder, LayerError)
        for name, text in self._files():
            write_whole(folder / f"{prefix}{name}", text.encode(errors="surrogateescape"), LayerError)
        self._n_seen, self._found = 0, []

    def _files(self) -> list[tuple[str, str]]:
        """The files' names, without the prefix, and contents."""
        if self._p.output_format == "COCO":
            return [(".json", json.dumps([{"image_id": int(image) if image.isdecimal() else image,
                                           "category_id": _category(self._names[label]), "bbox": place, "score": score}
                                          for image, label, score, place in self._found]) + "\n")]
        if self._p.output_format == "ILSVRC":
            return [(".txt", "".join(_line(f"{image} {label}", score, place)
                                     for image, label, score, place in self._found))]
        return [(f"{name}.txt", "".join(_line(image, score, place) for image, mine, score, place in self._found
                                        if mine == label)) for label, name in self._names.items()]


def _line(head: str, score: float, place: list[float]) -> str:
    x, y, width, height = (int(value) for value in place)
    return f"{head} {score:g} {x} {y} {x + width} {y + height}\n"


def _category(name: str) -> int | str:
    """MS COCO's label maps name classes by number."""
    return int(name) if name.isdecimal() else name


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
