"""DetectNetTransformation: augments images, and turns boxes into DetectNet's targets (NVIDIA's fork)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.input_files import read_input
from scaffe.layers.base.bases import NoGradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TRAIN, layer_types
from scaffe.layers.detectnet.augmentation import Selection, change_boxes, change_image, opencv, select
from scaffe.layers.detectnet.coverage import Coverage, read_boxes
from scaffe.proto.byte_text import path_of


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
