"""Caffe's Detector: a classifier run over windows of images, as R-CNN does (Caffe 1.0; Girshick et al., CVPR 2014)."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaffe import io
from scaffe.classifier import image_transformer
from scaffe.errors import UserError
from scaffe.layers.base.layer import TEST
from scaffe.pycaffe.net import Net

Window = Sequence[int]  # ymin, xmin, ymax, xmax


class Detector(Net):
    """A net that classifies windows of images.

    Args:
        model_file, pretrained_file: the net's prototxt and its weights, ``.caffemodel`` or another kind.
        mean, input_scale, raw_scale, channel_swap: see ``io.Transformer``.
        context_pad: pixels along each border of the input that show the window's surroundings; None or 0 for none.
    """

    def __init__(self, model_file: str, pretrained_file: str, mean: np.ndarray | None = None,
                 input_scale: float | None = None, raw_scale: float | None = None,
                 channel_swap: Sequence[int] | None = None, context_pad: int | None = None) -> None:
        super().__init__(model_file, TEST, weights=pretrained_file)
        self.transformer = image_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def detect_windows(self, images_windows: Iterable[tuple[str, Iterable[Window]]]) -> list[dict[str, Any]]:
        """Run the net on windows of images, each warped to the input's size.

        Args:
            images_windows: pairs of an image file and its windows (ymin, xmin, ymax, xmax) in pixels.

        Returns:
            For each window a dict of "filename", "window" and "prediction", the last from the net's first output.
        """
        name = self.inputs[0]
        found, prepared = [], []
        for filename, windows in images_windows:
            image = io.load_image(filename)
            for window in windows:
                prepared.append(self.transformer.preprocess(name, self.crop(image, window)))
                found.append({"window": window, "filename": filename})
        if not prepared:
            return []
        predictions = self.forward_all(**{name: np.stack(prepared)})[self.outputs[0]]
        return [{**one, "prediction": prediction} for one, prediction in zip(found, predictions, strict=True)]

    def detect_selective_search(self, image_fnames: Iterable[str]) -> list[dict[str, Any]]:
        """As ``detect_windows``, on the windows that Selective Search proposes for each image.

        Raises:
            UserError: the package ``selective_search_ijcv_with_python`` (which runs MATLAB) is not installed.
        """
        try:
            search = importlib.import_module("selective_search_ijcv_with_python")
        except ImportError as error:
            raise UserError("detect_selective_search needs the package selective_search_ijcv_with_python; "
                            "with windows of your own, call detect_windows") from error
        names = [str(Path(name).absolute()) for name in image_fnames]
        return self.detect_windows(zip(names, search.get_windows(names, cmd="selective_search_rcnn"), strict=True))

    def crop(self, im: np.ndarray, window: Window) -> np.ndarray:
        """Cut a window out of an image.

        With ``context_pad`` the crop has the input's size and includes the window's surroundings; what lies outside the
        image is filled with the mean.
        """
        y0, x0, y1, x1 = (int(edge) for edge in window)
        if not self.context_pad:
            return im[y0:y1, x0:x1]
        side = self.blobs[self.inputs[0]].width  # inputs are square
        (above, rows), (left, columns) = (_around(low, high, n, side, self.context_pad)
                                          for low, high, n in zip((y0, x0), (y1, x1), im.shape, strict=False))
        crop = np.ones(self.crop_dims, np.float32) * self.crop_mean
        part = io.resize_image(im[above, left], (rows.stop - rows.start, columns.stop - columns.start))
        crop[rows, columns] = part
        return crop.astype(np.float32)

    def configure_crop(self, context_pad: int | None) -> None:
        """Set the width of the context border in pixels, and prepare the mean image that fills what has no pixels."""
        name = self.inputs[0]
        back = np.argsort(self.transformer.transpose[name])
        self.crop_dims = np.array(self.blobs[name].shape[1:])[back]
        self.context_pad = context_pad
        mean = self.transformer.mean.get(name)
        self.crop_mean = np.zeros(self.crop_dims, np.float32)
        if mean is not None:
            image = np.broadcast_to(mean, self.blobs[name].shape[1:]).transpose(back)
            if name in self.transformer.channel_swap:
                image = image[:, :, np.argsort(self.transformer.channel_swap[name])]
            self.crop_mean = (image / self.transformer.raw_scale.get(name, 1.0)).astype(np.float32)


def _around(low: int, high: int, n_image: int, side: int, context: int) -> tuple[slice, slice]:
    """Widen low..high so that the window itself fills the crop but for ``context`` pixels at either end. Returns which
    pixels of the image go where in the crop."""
    half = (high - low + 1) / 2
    wide = half * side / (side - 2 * context)
    start, stop = round(low + half - wide), round(low + half + wide)
    scale = side / (stop - start + 1)
    outside = round(max(0, -start) * scale)
    start, stop = max(start, 0), min(stop, n_image)
    n_pixels = min(round((stop - start + 1) * scale), side - outside)
    if stop <= start or n_pixels <= 0:
        raise UserError(f"window {low} to {high} lies outside the image of {n_image} pixels")
    return slice(start, stop), slice(outside, outside + n_pixels)
