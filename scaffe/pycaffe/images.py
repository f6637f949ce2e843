"""Images in pycaffe's form: float32 (height, width, channels), RGB, values 0 to 1 (Caffe 1.0, caffe.io).

Resizing follows the scikit-image and SciPy versions of Caffe's time: linear, without smoothing beforehand.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from scaffe.data.records.decode import file_bytes, opencv
from scaffe.errors import DataError, MissingFile, UserError

LUMINANCE = np.array([0.2125, 0.7154, 0.0721])  # of R, G, B (scikit-image's rgb2gray)
Dims = Sequence[int] | np.ndarray  # height, width
GREYS_AND_COLOURS = (1, 3)
NEAREST, LINEAR, MOST_ORDER = 0, 1, 5


def load_image(filename: str | Path | IO[Any], color: bool = True) -> np.ndarray:
    """Read an image file.

    Args:
        filename: its path, or a file opened for reading bytes.
        color: whether to return three channels.

    Returns:
        float32 in [0, 1]: (height, width, 3) RGB, or (height, width, 1) grey with ``color=False``.

    Raises:
        MissingFile: the file cannot be opened (a ValueError, and a FileNotFoundError as in pycaffe).
        ValueError: OpenCV cannot read the image, or is not installed.
    """
    cv2 = opencv()
    content = _content(filename)
    image = cv2.imdecode(content, cv2.IMREAD_UNCHANGED) if len(content) else None
    if image is None:
        raise UserError(f"{getattr(filename, 'name', filename)}: not an image that OpenCV reads")
    full = np.iinfo(image.dtype).max if np.issubdtype(image.dtype, np.integer) else 1
    image = image.reshape(*image.shape[:2], -1) / full
    if image.shape[2] >= 3:
        image = image[:, :, 2::-1]  # BGR or BGRA to RGB
        return np.asarray(image if color else image @ LUMINANCE[:, None], np.float32)
    return np.tile(image[:, :, :1], (1, 1, 3 if color else 1)).astype(np.float32)


def _content(file: str | Path | IO[Any]) -> np.ndarray:
    """The bytes of a file, (n,)."""
    try:
        content = file_bytes(file) if isinstance(file, (str, Path)) else file.read()
    except DataError as error:
        raise MissingFile(str(error)) from error
    if isinstance(content, str):
        raise UserError(f"{getattr(file, 'name', file)}: opened as text; an image is read from a file opened with 'rb'")
    return np.frombuffer(content, np.uint8)


def resize_image(im: np.ndarray, new_dims: Dims, interp_order: int = LINEAR) -> np.ndarray:
    """Resize an image.

    With one or three channels pixels are areas, and everything outside the image has the image's minimum value. With
    any other number of channels pixels are points, and the corner pixels stay at the corners. pycaffe does the same.

    Args:
        im: (height, width, channels).
        new_dims: new height and width.
        interp_order: 0 for the nearest pixel, 1 for linear, 2 to 5 for splines of that order (which need SciPy).

    Returns:
        float32 (*new_dims, channels).

    Raises:
        UserError: an unknown order, or one that needs SciPy, which is not installed.
    """
    if interp_order not in range(MOST_ORDER + 1):
        raise UserError(f"interp_order must be 0 (nearest), 1 (linear) or up to {MOST_ORDER}, got {interp_order}")
    if interp_order > LINEAR:
        return _resize_by_splines(np.asarray(im, np.float64), new_dims, interp_order)
    as_areas = im.shape[-1] in GREYS_AND_COLOURS
    height, width = (int(n) for n in new_dims)
    least = float(im.min()) if as_areas else 0.0
    framed = np.pad(np.asarray(im, np.float64) - least, ((1, 1), (1, 1), (0, 0)))
    for axis, n_new in ((0, height), (1, width)):
        framed = _resample(framed, axis, _places(im.shape[axis], n_new, as_areas), interp_order)
    return (framed + least).astype(np.float32)


def _resize_by_splines(im: np.ndarray, new_dims: Dims, order: int) -> np.ndarray:
    """``resize_image`` by SciPy's splines. If pixels are areas, values are clipped to the image's range."""
    try:
        ndimage = importlib.import_module("scipy.ndimage")
    except ImportError as error:
        raise UserError(f"interp_order {order} needs SciPy: pip install scipy") from error
    factors = (*(int(new) / old for new, old in zip(new_dims, im.shape, strict=False)), 1)
    if im.shape[-1] not in GREYS_AND_COLOURS:
        return np.asarray(ndimage.zoom(im, factors, order=order), np.float32)
    least, most = im.min(), im.max()
    zoomed = ndimage.zoom(im - least, factors, order=order, mode="grid-constant", grid_mode=True)
    return np.asarray(np.clip(zoomed, 0, most - least) + least, np.float32)


def _places(n_old: int, n_new: int, as_areas: bool) -> np.ndarray:
    """The coordinate of each new pixel among the old ones."""
    if as_areas:
        return (np.arange(n_new) + 0.5) * n_old / n_new - 0.5
    return np.arange(n_new) * ((n_old - 1) / max(n_new - 1, 1))


def _resample(framed: np.ndarray, axis: int, places: np.ndarray, order: int) -> np.ndarray:
    """Resample an image that has a border of one pixel along one axis. The other axis keeps its border."""
    if order == NEAREST:
        places = np.floor(places + 0.5)
    low = np.floor(places).astype(int)
    share = (places - low).reshape(-1, *[1] * (framed.ndim - 1 - axis))
    after = np.minimum(low + 2, framed.shape[axis] - 1)
    return np.asarray(framed.take(low + 1, axis) * (1 - share) + framed.take(after, axis) * share)


def oversample(images: Sequence[np.ndarray] | np.ndarray, crop_dims: Dims) -> np.ndarray:
    """Ten crops of each image: the four corners and the centre, then the same five mirrored.

    Args:
        images: n images (height, width, channels) of the same shape.
        crop_dims: height and width of the crops.

    Returns:
        float32 (10 n, *crop_dims, channels); the ten crops of an image follow one another.
    """
    height, width = (int(n) for n in crop_dims)
    down, right = images[0].shape[0] - height, images[0].shape[1] - width
    corners = [(0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2)]
    crops = [[image[y:y + height, x:x + width] for y, x in corners] for image in images]
    plain = np.array(crops, np.float32)
    both = np.concatenate([plain, plain[:, :, :, ::-1]], axis=1)
    return both.reshape(-1, height, width, images[0].shape[-1])


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
