"""Caffe's Classifier: a net together with the preprocessing of its images (Caffe 1.0, caffe.Classifier)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe import io
from scaffe.layers.base.layer import TEST
from scaffe.pycaffe.net import Net


class Classifier(Net):
    """A net that classifies images.

    Args:
        model_file, pretrained_file: the net's prototxt and its weights, ``.caffemodel`` or another kind.
        image_dims: height and width to which images are resized before cropping; by default the input's.
        mean, input_scale, raw_scale, channel_swap: see ``io.Transformer``.
    """

    def __init__(self, model_file: str, pretrained_file: str, image_dims: Sequence[int] | None = None,
                 mean: np.ndarray | None = None, input_scale: float | None = None, raw_scale: float | None = None,
                 channel_swap: Sequence[int] | None = None) -> None:
        super().__init__(model_file, TEST, weights=pretrained_file)
        self.transformer = image_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        self.image_dims = self.crop_dims if image_dims is None or not len(image_dims) else np.array(image_dims)

    def predict(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """Classify images.

        Args:
            inputs: n images, each (height, width, channels).
            oversample: average over ten crops (corners and centre, each also mirrored); False takes the centre only.

        Returns:
            The net's first output, (n, classes).
        """
        name = self.inputs[0]
        images = np.stack([io.resize_image(image, self.image_dims) for image in inputs])
        if oversample:
            crops = io.oversample(images, self.crop_dims)
        else:
            top, left = (self.image_dims - self.crop_dims) // 2
            crops = images[:, top:top + self.crop_dims[0], left:left + self.crop_dims[1]]
        prepared = np.stack([self.transformer.preprocess(name, crop) for crop in crops])
        predictions = self.forward_all(**{name: prepared})[self.outputs[0]]
        return predictions.reshape(len(inputs), 10, -1).mean(axis=1) if oversample else predictions


def image_transformer(net: Net, mean: np.ndarray | None, input_scale: float | None, raw_scale: float | None,
                      channel_swap: Sequence[int] | None) -> io.Transformer:
    """The Transformer for a net's first input. Raises UserError if an option does not fit the input."""
    name = net.inputs[0]
    transformer = io.Transformer({name: net.blobs[name].shape})
    transformer.set_transpose(name, (2, 0, 1))
    options: list[tuple[Any, Any]] = [
        (transformer.set_mean, mean), (transformer.set_input_scale, input_scale),
        (transformer.set_raw_scale, raw_scale), (transformer.set_channel_swap, channel_swap)]
    for set_option, value in options:
        if value is not None:
            set_option(name, value)
    return transformer
