"""Converts images to a net's input and back (Caffe 1.0, caffe.io.Transformer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.pycaffe.images import resize_image


class Transformer:
    """Prepares images (height, width, channels) for inputs (channels, height, width).

    The steps, in this order, each only if it is set: resize to the input's height and width, transpose, swap channels,
    multiply by raw_scale, subtract the mean, multiply by input_scale.

    Args:
        inputs: the shape (batch, channels, height, width) of each of the net's inputs, by name.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]) -> None:
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, np.ndarray] = {}
        self.input_scale: dict[str, float] = {}

    def preprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """Convert an image for an input.

        Args:
            in_: the input's name.
            data: the image, (height, width, channels); it is not changed.

        Returns:
            float32, usually (channels, height, width): the axes are in the order that ``set_transpose`` gave.

        Raises:
            UserError: an unknown input, or an image of too few channels for the input's swap or mean.
        """
        self._check(in_)
        image = np.array(data, np.float32)
        if image.shape[:2] != self.inputs[in_][2:]:
            image = resize_image(image, self.inputs[in_][2:])
        if in_ in self.transpose:
            image = image.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            order = list(self.channel_swap[in_])
            self._check_channels(in_, len(image) > max(order), np.shape(data))
            image = image[order]
        if in_ in self.raw_scale:
            image = image * np.float32(self.raw_scale[in_])
        if in_ in self.mean:
            less = image - self.mean[in_]
            self._check_channels(in_, less.size == image.size, np.shape(data))
            image = less.astype(np.float32)
        return image * np.float32(self.input_scale.get(in_, 1.0))

    def deprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """The inverse of ``preprocess``, except that the image keeps the input's height and width."""
        self._check(in_)
        image = np.array(data, np.float32).squeeze() / np.float32(self.input_scale.get(in_, 1.0))
        if in_ in self.mean:
            image = (image + self.mean[in_]).astype(np.float32)
        image = image / np.float32(self.raw_scale.get(in_, 1.0))
        if in_ in self.channel_swap:
            image = image[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            image = image.transpose(np.argsort(self.transpose[in_]))
        return image

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of the axes: (2, 0, 1) puts an image's channels first. Raises UserError."""
        self._set(self.transpose, in_, order, len(order) == len(self._check(in_)) - 1, "one axis fewer than the input")

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of the channels, applied after the transposition: (2, 1, 0) turns RGB into BGR. Raises
        UserError."""
        self._set(self.channel_swap, in_, order, len(order) == self._check(in_)[1], "as many as the input's channels")

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Set a factor applied before the mean is subtracted: 255 for nets trained on pixels of 0 to 255."""
        self._set(self.raw_scale, in_, scale)

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Set a factor applied after the mean is subtracted."""
        self._set(self.input_scale, in_, scale)

    def set_mean(self, in_: str, mean: np.ndarray) -> None:
        """Set the mean to subtract.

        Args:
            in_: the input's name.
            mean: (channels,), or an image (channels, height, width), which is resized to the input's size.

        Raises:
            UserError: the mean does not fit the input.
        """
        shape = self._check(in_)
        if mean.ndim == 1:
            self._set(self.mean, in_, mean[:, None, None], len(mean) == shape[1], "one value a channel")
            return
        image = mean[None] if mean.ndim == 2 else mean
        fits = image.ndim == 3 and image.shape[0] in (1, shape[1])
        self._set(self.mean, in_, mean, fits, "(channels, height, width)")
        if image.shape[1:] != shape[2:]:
            self.mean[in_] = resize_image(image.transpose(1, 2, 0), shape[2:]).transpose(2, 0, 1)

    def _check(self, in_: str) -> tuple[int, ...]:
        if in_ not in self.inputs:
            raise UserError(f"{in_!r} is none of the net's inputs: {', '.join(self.inputs)}")
        return self.inputs[in_]

    def _check_channels(self, in_: str, fits: bool, shape: tuple[int, ...]) -> None:
        if not fits:
            raise UserError(f"input {in_!r} has shape {self.inputs[in_]}; an image of shape {shape} has too few "
                            "channels for its channel swap or its mean")

    def _set(self, where: dict[str, Any], in_: str, value: Any, fits: bool = True, expected: str = "") -> None:
        shape = self._check(in_)
        if not fits:
            raise UserError(f"input {in_!r} has shape {shape}; expected {expected}, got {np.shape(value)}")
        where[in_] = value
