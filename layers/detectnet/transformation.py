"""DetectNetTransformation: augments images, and turns boxes into DetectNet's targets (NVIDIA/caffe,
detectnet_transform_layer.cpp and detectnet_coverage_rectangular.cpp).

Boxes are rows of 16 numbers; x, y, width and height come first, then an angle, then the class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.input_files import read_input
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TRAIN, layer_types
from scaffe.proto.byte_text import path_of

SMALL = float(np.finfo(np.float32).eps)
LEAST_DESATURATION = 1 / 255
Size = tuple[int, int]  # width, height


@dataclass(frozen=True)
class Selection:
    """The changes to one image: degrees that the hue turns by, a factor on the saturation, flip from left to right,
    width and height in pixels to resize to, degrees of rotation, and the column and row of the result's first pixel;
    outside the image the result is 0. They are applied in the order hue, saturation, flip, size, rotation, crop."""

    size: Size
    hue: float = 0.0
    saturation: float = 1.0
    flip: bool = False
    rotation: float = 0.0
    crop: tuple[int, int] = (0, 0)

    @property
    def rotates(self) -> bool:
        """Whether the image is rotated noticeably."""
        return abs(self.rotation) > SMALL


def select(original: Size, wanted: Size, p: Any, chance: Callable[[], float]) -> Selection:
    """Draw the changes to a training image by a DetectNetAugmentationParameter message. Sizes are (width, height) of
    the image and of the result; ``chance`` gives numbers in [0, 1]."""
    chosen = Selection(original)
    if chance() <= p.hue_rotation_prob:
        chosen = replace(chosen, hue=float(np.clip((chance() - 0.5) * 2 * p.hue_rotation, -180, 180)))
    if chance() <= p.desaturation_prob:
        chosen = replace(chosen, saturation=1 - chance() * p.desaturation_max)
    chosen = replace(chosen, flip=chance() <= p.flip_prob)
    if chance() <= p.scale_prob:
        factor = p.scale_min + (p.scale_max - p.scale_min) * chance()
        chosen = replace(chosen, size=(_rounded(original[0] * factor), _rounded(original[1] * factor)))
    if chance() <= p.rotation_prob:
        chosen = replace(chosen, rotation=(chance() - 0.5) * 2 * p.max_rotate_degree)
    whole = rotated_size(chosen.size, chosen.rotation) if chosen.rotates else chosen.size
    if chance() <= p.crop_prob:
        places, shifts = (chance(), chance()), (int(p.shift_x), int(p.shift_y))
    else:
        places, shifts = (0.5, 0.5), (0, 0)
    x, y = (_rounded(place * (n - m + shift) - shift // 2)
            for place, n, m, shift in zip(places, whole, wanted, shifts, strict=True))
    return replace(chosen, crop=(x, y))


def change_image(image: np.ndarray, mean: np.ndarray, chosen: Selection, wanted: Size) -> np.ndarray:
    """Change an image, float32 (height, width, 3), 0 to 255, blue first, to one of ``wanted`` width and height. The
    mean, which broadcasts to the image, is subtracted after the colours have changed."""
    cv2 = opencv()
    pixels = image / np.float32(255)
    if abs(chosen.hue) > SMALL or chosen.saturation < 1 - LEAST_DESATURATION:
        colours = cv2.cvtColor(pixels, cv2.COLOR_BGR2HSV)
        colours[:, :, 0] += np.float32(chosen.hue)
        colours[:, :, 1] *= np.float32(chosen.saturation if chosen.saturation < 1 - LEAST_DESATURATION else 1)
        pixels = cv2.cvtColor(colours, cv2.COLOR_HSV2BGR)
    pixels = (pixels - mean / np.float32(255)).astype(np.float32)
    if chosen.flip:
        pixels = np.ascontiguousarray(pixels[:, ::-1])
    if pixels.shape[1::-1] != chosen.size:
        pixels = cv2.resize(pixels, chosen.size, interpolation=cv2.INTER_CUBIC)
    if chosen.rotates:
        size = rotated_size(chosen.size, chosen.rotation)
        pixels = cv2.warpAffine(pixels, rotation_matrix(chosen.size, chosen.rotation), size,
                                dst=np.zeros((size[1], size[0], 3), np.float32), flags=cv2.INTER_LINEAR,
                                borderMode=cv2.BORDER_TRANSPARENT)
    return cropped(pixels, chosen.crop, wanted) * np.float32(255)


def cropped(image: np.ndarray, crop: tuple[int, int], wanted: Size) -> np.ndarray:
    """The part of an image from ``crop`` on, (column, row); 0 outside the image."""
    out = np.zeros((wanted[1], wanted[0], image.shape[2]), image.dtype)
    (x, y), (height, width) = crop, image.shape[:2]
    left, right = max(x, 0), min(x + wanted[0], width)
    top, bottom = max(y, 0), min(y + wanted[1], height)
    if left < right and top < bottom:
        out[top - y : bottom - y, left - x : right - x] = image[top:bottom, left:right]
    return out


def change_boxes(boxes: np.ndarray, original: Size, chosen: Selection) -> np.ndarray:
    """Apply an image's changes to its boxes; rotated boxes keep their size. Rows begin with x, y, width, height."""
    out = boxes.copy()
    if chosen.flip:
        out[:, 0] = original[0] - out[:, 0] - out[:, 2] - 1
    if chosen.size != original:
        out[:, :4] *= np.tile(np.array(chosen.size) / original, 2)
    if chosen.rotates:
        half = out[:, 2:4] / 2
        matrix = rotation_matrix(chosen.size, chosen.rotation)
        out[:, :2] = (out[:, :2] + half) @ matrix[:, :2].T + matrix[:, 2] - half
    out[:, :2] -= chosen.crop
    return out


def rotated_size(size: Size, degrees: float) -> Size:
    """Width and height of the smallest upright box, in whole pixels, around a rotated one."""
    low, high = _bounds((size[0] // 2, size[1] // 2), size, degrees)
    return int(high[0] - low[0] + 1), int(high[1] - low[1] + 1)


def rotation_matrix(size: Size, degrees: float) -> np.ndarray:
    """The affine map, (2, 3), that rotates an image about its centre and moves it into view."""
    cv2, centre = opencv(), np.array(size) / 2
    low, _ = _bounds(centre, size, degrees)
    before = cv2.boxPoints((tuple(centre), size, 0.0))
    after = cv2.boxPoints((tuple(centre - low), size, degrees))
    matrix: np.ndarray = cv2.getAffineTransform(before[:3], after[:3])
    return matrix


def _bounds(centre: Any, size: Size, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest whole pixels of a rotated box's corners."""
    points = opencv().boxPoints(((float(centre[0]), float(centre[1])), size, degrees))
    return np.floor(points.min(0)), np.ceil(points.max(0))


def _rounded(number: float) -> int:
    """C's round: halves away from 0."""
    return int(np.copysign(np.floor(abs(number) + 0.5), number))


def opencv() -> ModuleType:
    """The OpenCV module. Raises LayerError if it is not installed."""
    try:
        import cv2
    except ImportError:
        raise LayerError("images are changed by OpenCV: pip install 'opencv-python-headless<5'") from None
    return cv2


N_COLUMNS = 16  # numbers of a box in the labels
CLASS = 5
N_FIXED = 8  # planes before the classes': foreground, corners (4), inverse sizes (2), object norm


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
