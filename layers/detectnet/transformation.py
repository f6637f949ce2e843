"""DetectNetTransformation: augments images, and turns boxes into DetectNet's targets (NVIDIA/caffe,
detectnet_transform_layer.cpp and detectnet_coverage_rectangular.cpp).

Boxes are rows of 16 numbers; x, y, width and height come first, then an angle, then the class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.input_files import read_input
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TRAIN, layer_types
from scaffe.layers.detectnet.augmentation import Selection, change_boxes, change_image, opencv, select
from scaffe.proto.byte_text import path_of

N_COLUMNS = 16  # numbers of a box in the labels
CLASS = 5
N_FIXED = 8  # planes before the classes': foreground, corners (4), inverse sizes (2), object norm
SMALL = float(np.finfo(np.float32).eps)


class Coverage:
    """Marks the cells that boxes cover, as a DetectNetGroundTruthParameter message says. ``shape`` is that of
    ``planes``, (8 + classes, rows, columns). Raises LayerError if the stride or the image's size is 0."""

    def __init__(self, options: Any) -> None:
        self._options, self._stride = options, int(options.stride)
        if min(options.stride, options.image_size_x, options.image_size_y) < 1:
            raise LayerError(f"wants a stride and an image size above 0, got {options.stride} and "
                             f"{options.image_size_x} x {options.image_size_y}")
        self._classes = {int(c.src): int(c.dst) for c in options.object_class} or {1: 0}
        grid = (round(options.image_size_y / self._stride), round(options.image_size_x / self._stride))
        self.shape = (N_FIXED + max(self._classes.values()) + 1, *grid)

    def planes(self, boxes: np.ndarray) -> np.ndarray:
        """The planes of one image with boxes (n, 16), in pixels of the image that the net sees.

        Each cell that a box's coverage region meets has: 1; the box's corners minus the cell's; 1 / width and 1 /
        height; the cell's area over the region's, at least 1 without obj_norm; and 1 for its class. Of several boxes
        that cover a cell, the last counts."""
        out = np.zeros(self.shape)
        for row in boxes:
            box, label = self._kept_part(row[:4]), int(row[CLASS])
            if label in self._classes and box[2] * box[3] >= SMALL:
                self._mark(out, box, self._classes[label])
        return out

    def _kept_part(self, box: np.ndarray) -> np.ndarray:
        """The part of a box inside the image, or all of it without crop_bboxes."""
        if not self._options.crop_bboxes:
            return box
        size = np.array([self._options.image_size_x, self._options.image_size_y])
        low, high = np.maximum(box[:2], 0), np.minimum(box[:2] + box[2:], size)
        return np.concatenate([low, high - low]) if (high > low).all() else np.zeros(4)

    def _mark(self, out: np.ndarray, box: np.ndarray, plane: int) -> None:
        low, high = self._region(box)
        area, stride = float(np.prod(high - low)), self._stride
        first = np.maximum(np.floor(low / stride), 0).astype(int)
        end = np.minimum(np.ceil(high / stride), self.shape[:0:-1]).astype(int)
        norm = stride**2 / area if area else np.inf
        for row in range(first[1], end[1]):
            for column in range(first[0], end[0]):
                corner = np.array([column, row]) * stride
                common = np.minimum(high, corner + stride) - np.maximum(low, corner)
                if (common > 0).all() and np.prod(common) / stride**2 > SMALL:
                    cell = out[:, row, column]
                    cell[N_FIXED:] = 0
                    cell[N_FIXED + plane] = cell[0] = 1
                    cell[1:5] = np.concatenate([box[:2], box[:2] + box[2:]]) - np.tile(corner, 2)
                    cell[5:7] = 1 / box[2:]
                    cell[7] = max(0.0 if self._options.obj_norm else 1.0, norm)

    def _region(self, box: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The corners of the region around a box's centre that counts as covered."""
        p = self._options
        size = box[2:] * p.scale_cvg
        if p.gridbox_type == p.GRIDBOX_MIN:
            size = np.minimum(box[2:], np.maximum(p.min_cvg_len, size))
        else:
            size = np.minimum(p.max_cvg_len, size)
        centre = box[:2] + box[2:] / 2
        return centre - size / 2, centre + size / 2


def read_boxes(labels: np.ndarray) -> np.ndarray:
    """The boxes of one item of a label blob, (n, 16): number of boxes and 16 stand first, and fill a row of their own.
    Raises LayerError if the numbers do not say what the item holds."""
    flat = labels.reshape(-1)
    if flat.size < N_COLUMNS or flat[1] != N_COLUMNS or not 0 <= flat[0] <= flat.size // N_COLUMNS - 1:
        raise LayerError(f"wants labels of {N_COLUMNS} numbers a box after a row with the number of boxes and "
                         f"{N_COLUMNS}; got {flat[:2].tolist()} before {flat.size} numbers")
    n_boxes = int(flat[0])
    return flat[N_COLUMNS : (n_boxes + 1) * N_COLUMNS].reshape(n_boxes, N_COLUMNS).astype(np.float64)


@layer_types.register("DetectNetTransformation")
class DetectNetTransformation(NoGradient):
    """Augments images in training, resizes them in testing, and computes the targets of a grid's cells.

    In training hue, saturation, side, scale, rotation and crop are drawn as detectnet_augmentation_param says
    (``augmentation.select``); in testing images are resized to the net's. transform_param's mean is subtracted after
    the colours have changed; its other options have no effect, as in NVIDIA/caffe (detectnet_transform_layer.cpp). The
    random numbers are the net's: each image takes them from its stream in the fork's order.

    Bottoms: images (N, 3, H, W), 0 to 255, blue first; boxes, 16 numbers each (see ``coverage``), N items.
    Tops: images (N, 3, image_size_y, image_size_x); planes (N, 8 + classes, rows, columns) (see ``Coverage``).
    """

    n_bottoms = (2, 2)
    n_tops = (2, 2)
    exact_bottoms = (1,)
    host_only = True
    temporaries = 2

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        g, t = self.param.detectnet_groundtruth_param, self.param.transform_param
        self._coverage, self._wanted = Coverage(g), (int(g.image_size_x), int(g.image_size_y))
        if len(t.mean_value) not in (0, 1, 3) or t.mean_value and t.HasField("mean_file"):
            raise LayerError("wants 1 or 3 mean_value, or a mean_file, or none")
        self._mean_file = read_mean(path_of(t.mean_file)) if t.HasField("mean_file") else None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape, labels = bottom[0].shape, bottom[1].shape
        if len(shape) != 4 or shape[1] != 3 or min(shape) < 1 or labels[:1] != shape[:1]:
            raise LayerError(f"wants images (N, 3, H, W) and the boxes of N items, got {shape} and {labels}")
        top[0].reshape((shape[0], 3, self._wanted[1], self._wanted[0]))
        top[1].reshape((shape[0], *self._coverage.shape))
        self._size = (shape[3], shape[2])
        self._mean = self._mean_of(self._size)

    def _mean_of(self, size: tuple[int, int]) -> np.ndarray:
        """The mean of images of this width and height, float32, that broadcasts to (H, W, 3)."""
        if self._mean_file is None:
            return np.array(self.param.transform_param.mean_value or (0.0,), np.float32)
        cv2 = opencv()
        resized: np.ndarray = cv2.resize(self._mean_file, size, interpolation=cv2.INTER_CUBIC)
        return resized

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for item in range(bottom[0].shape[0]):
            image = np.ascontiguousarray(np.moveaxis(bottom[0].data[item], 0, -1), np.float32)
            boxes = read_boxes(bottom[1].data[item])
            chosen = (select(self._size, self._wanted, self.param.detectnet_augmentation_param, self._chance)
                      if self.context.phase == TRAIN else Selection(self._wanted))
            top[0].data[item] = np.moveaxis(change_image(image, self._mean, chosen, self._wanted), -1, 0)
            top[1].data[item] = self._coverage.planes(change_boxes(boxes, self._size, chosen))

    def _chance(self) -> float:
        """The next number in [0, 1]."""
        return float(self.context.rng.draw(1)[0]) / (2**32 - 1)


def read_mean(path: str) -> np.ndarray:
    """The image of a mean file, float32 (H, W, 3). Raises LayerError if it is not one image of three channels."""
    from google.protobuf.message import DecodeError

    from scaffe.proto import caffe_pb2

    blob = caffe_pb2.BlobProto()
    try:
        blob.ParseFromString(read_input(path))
    except (OSError, DecodeError) as error:
        raise LayerError(f"cannot read a mean file from {path}: {error}") from error
    shape = tuple(blob.shape.dim) or (blob.num, blob.channels, blob.height, blob.width)
    values = np.array(blob.data, np.float32)
    if shape[-3:-2] != (3,) or shape[:-3] not in ((), (1,)) or int(np.prod(shape)) != values.size:
        raise LayerError(f"mean file {path}: expected one image of 3 channels, found {values.size} values of shape "
                         f"{shape}")
    return np.ascontiguousarray(np.moveaxis(values.reshape(shape[-3:]), 0, -1))
