"""Feeds of windows cut out of images, with their surroundings (Caffe 1.0, WindowDataLayer)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaffe.data.feeds.feed import Feed, Plan, ReaderOptions, Tolerance, batches_held, check_batches_fit, prefetcher
from scaffe.data.feeds.image_feed import image_batch
from scaffe.data.feeds.pixel_batch import PixelBatch
from scaffe.data.feeds.prefetch import Maker, job_rows
from scaffe.data.order.share import Draws
from scaffe.data.records.decode import Colour, decode, file_bytes, opencv, read_image
from scaffe.data.records.transform import TransformOptions, mean_of_channels
from scaffe.data.sources.windows import Windows, read_windows
from scaffe.errors import DataError

Box = tuple[int, int, int, int]  # x1, y1, x2, y2
Single = np.float32  # Caffe computes this in single precision, which decides some roundings


@dataclass(frozen=True)
class Placement:
    """A window's part of the image and its place in the result.

    Attributes:
        rows, columns: first and one past the last row and column of the part of the image.
        height, width: pixels that the part is resized to.
        top, left: first row and column of the resized part in the result.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    height: int
    width: int
    top: int = 0
    left: int = 0


def place(box: Box, image: tuple[int, int], side: int, pad: int = 0, square: bool = False,
          mirrored: bool = False) -> Placement:
    """Compute the placement of a window.

    Args:
        box: x1, y1, x2, y2 in pixels, all inside the window (x2 and y2 too).
        image: the image's height and width.
        side: side of the square result in pixels.
        pad: pixels of context around the window, counted in the result.
        square: take the smallest square around the window.
        mirrored: the part will be mirrored left to right, so padding changes sides.

    Returns:
        The placement. With ``pad`` or ``square`` the part ends at the image's edge; the rest of the result is padding.
    """
    x1, y1, x2, y2 = box
    if not pad and not square:
        return Placement((y1, y2 + 1), (x1, x2 + 1), side, side)
    x1, y1, x2, y2 = _expand(box, Single(side) / Single(side - 2 * pad), square)
    cut_left, cut_top = max(0, -x1), max(0, -y1)
    cut_right, cut_bottom = max(0, x2 - image[1] + 1), max(0, y2 - image[0] + 1)
    scale_x, scale_y = Single(side) / Single(x2 - x1 + 1), Single(side) / Single(y2 - y1 + 1)
    rows, columns = (y1 + cut_top, y2 - cut_bottom + 1), (x1 + cut_left, x2 - cut_right + 1)
    top = _round(Single(cut_top) * scale_y)
    left = _round(Single(cut_right if mirrored else cut_left) * scale_x)
    height = min(_round(Single(rows[1] - rows[0]) * scale_y), side - top)
    width = min(_round(Single(columns[1] - columns[0]) * scale_x), side - left)
    return Placement(rows, columns, height, width, top, left)


def _expand(box: Box, scale: np.float32, square: bool) -> Box:
    """The box, made square if asked, scaled about its centre."""
    x1, y1, x2, y2 = box
    half_height, half_width = Single((y2 - y1 + 1) / 2), Single((x2 - x1 + 1) / 2)
    center_x, center_y = Single(x1) + half_width, Single(y1) + half_height
    if square:
        half_height = half_width = max(half_height, half_width)
    return (_round(center_x - half_width * scale), _round(center_y - half_height * scale),
            _round(center_x + half_width * scale), _round(center_y + half_height * scale))


def _round(x: np.float32) -> int:
    """C's round: halves go away from zero."""
    return int(np.copysign(np.floor(abs(float(x)) + 0.5), x))


DEPTH = 4  # batches prefetched


@dataclass(frozen=True)
class WindowOptions:
    """The options of a WindowDataParameter message.

    Attributes:
        crop_size: side of the square result in pixels.
        context_pad: pixels of context around a window, counted in the result.
        square: cut the smallest square around a window; otherwise warp the window to a square.
        scale: factor, applied after the mean is subtracted.
        fg_threshold: windows with at least this overlap are foreground.
        bg_threshold: windows with less than this overlap are background.
        fg_fraction: fraction of a batch that is foreground.
        cache_images: keep all image files in memory, still compressed.
        root: prefix of every image's path, joined without a slash.
    """

    crop_size: int
    context_pad: int
    square: bool
    scale: float
    fg_threshold: float
    bg_threshold: float
    fg_fraction: float
    cache_images: bool
    root: str


def window_feed(path: str, plan: Plan, transform: TransformOptions, window: WindowOptions,
                options: ReaderOptions) -> Feed:
    """Make a feed of windows.

    Args:
        path: the window file.
        plan: which batches. Its order turns a visit into a place in the batch of all ranks together, whose first
            places are background and the others foreground; which window is taken is drawn at random.
        transform: mean and mirroring.
        window: the other options.
        options: how to read.

    Returns:
        A feed with two tops: windows (n, channels, crop_size, crop_size) and labels (n,).

    Raises:
        DataError: the window file cannot be read, or the parameters do not fit.
    """
    if window.crop_size < 1:
        raise DataError("WindowData needs a crop_size above 0")
    if 2 * window.context_pad >= window.crop_size:
        raise DataError(f"context_pad {window.context_pad} leaves nothing of crop_size {window.crop_size}")
    windows = read_windows(path, window.root, window.fg_threshold, window.bg_threshold)
    n, shape = plan.batch_elems, (windows.n_channels, window.crop_size, window.crop_size)
    check_batches_fit(batches_held(DEPTH, options), [(n, *shape)])  # before the mean is made as large
    draws = Draws(plan.seed, 1 + int(transform.mirror))
    jobs = ((plan.order.records(visits), draws.take(visits)) for visits in plan.visits)
    tolerance = Tolerance(options.n_bad_allowed, len(windows.paths), options.on_bad)
    cutter = _Cutter(windows, plan.order.n_records, transform, window, tolerance)
    maker = Maker(cutter.fill, job_rows)
    readers = prefetcher(jobs, maker, lambda allocate: image_batch(n, shape, allocate), [(n, *shape)], DEPTH, options)
    return Feed([(n, *shape), (n,)], readers, lambda: None)


class _Cutter:
    """Makes batches of windows. Threads share one object."""

    def __init__(self, windows: Windows, batch: int, transform: TransformOptions, window: WindowOptions,
                 tolerance: Tolerance) -> None:
        self._windows, self._window, self._tolerance = windows, window, tolerance
        self._n_background = batch - int(np.float32(batch) * np.float32(window.fg_fraction))
        self._mean = _mean(transform, windows.n_channels, window.crop_size)
        self._scale = np.float32(window.scale)
        self._files: list[np.ndarray | None] = [None] * len(windows.paths)
        if window.cache_images:
            self._files = [self._content(image) for image in range(len(windows.paths))]

    def fill(self, job: tuple[np.ndarray, np.ndarray], batch: PixelBatch, rows: slice) -> None:
        """Draw and cut a window for each of these places of the batch."""
        places, draws = job
        batch.images[rows] = 0
        for i in range(rows.start, rows.stop):
            kind = self._windows.background if places[i] < self._n_background else self._windows.foreground
            mirrored = draws.shape[1] > 1 and bool(draws[i, 1] % 2)
            batch.labels[i] = self._cut_one_of(kind, int(draws[i, 0]), mirrored, batch.images[i])

    def _cut_one_of(self, kind: np.ndarray, first: int, mirrored: bool, out: np.ndarray) -> int:
        """Cut the window that was drawn, or else the next one with a good image. Returns its label."""
        for k in range(first, first + len(kind)):
            image, label, x1, y1, x2, y2 = (int(x) for x in kind[k % len(kind)])
            try:
                self._cut(image, (x1, y1, x2, y2), mirrored, out)
                return label
            except DataError as error:
                self._tolerance.pass_over(image, error)
        raise DataError(f"none of the {len(kind)} windows of one kind lies in a good image")

    def _content(self, image: int) -> np.ndarray | None:
        """The bytes of an image file; None if it cannot be read and that is tolerated."""
        try:
            return file_bytes(self._windows.paths[image])
        except DataError as error:
            self._tolerance.pass_over(image, error)
            return None

    def _cut(self, image: int, box: Box, mirrored: bool, out: np.ndarray) -> None:
        """Write one window into ``out``, float32 (side, side, channels), which holds zeros."""
        pixels = self._decode(image)
        options = self._window
        n_rows, n_columns, _ = pixels.shape
        at = place(box, (n_rows, n_columns), options.crop_size, options.context_pad, options.square, mirrored)
        part = pixels[at.rows[0]:at.rows[1], at.columns[0]:at.columns[1]]
        whole = at.rows[1] - at.rows[0], at.columns[1] - at.columns[0]
        if min(at.rows[0], at.columns[0]) < 0 or part.shape[:2] != whole or part.size == 0:
            raise DataError(f"{self._windows.paths[image]}: the window {box} lies outside the image of "
                            f"{pixels.shape[0]} x {pixels.shape[1]}")
        if min(at.height, at.width) < 1:
            raise DataError(f"{self._windows.paths[image]}: nothing is left of the window {box}, shrunk to "
                            f"{options.crop_size} x {options.crop_size}")
        part = opencv().resize(part, (at.width, at.height))
        if mirrored:
            part = part[:, ::-1]
        land = np.s_[at.top:at.top + at.height, at.left:at.left + at.width]
        out[land] = (part.astype(np.float32) - self._mean[land]) * self._scale

    def _decode(self, image: int) -> np.ndarray:
        path = self._windows.paths[image]
        content = self._files[image]
        pixels = read_image(path, Colour.BGR) if content is None else decode(content, Colour.BGR)
        if pixels is None:
            raise DataError(f"{path}: not an image of 8 bits that OpenCV reads")
        if pixels.shape[2] != self._windows.n_channels:
            raise DataError(f"{path}: expected {self._windows.n_channels} channels, found {pixels.shape[2]}")
        return pixels


def _mean(transform: TransformOptions, channels: int, side: int) -> np.ndarray:
    """The mean to subtract, float32 (side, side, channels): the middle of the mean image, or the mean values."""
    if transform.mean_image is not None:
        image = np.moveaxis(transform.mean_image, 0, -1)
        off = (image.shape[1] - side) // 2
        if image.shape[2] != channels or off < 0 or off + side > image.shape[0]:
            raise DataError(f"the mean file's shape {transform.mean_image.shape} does not cover crop_size {side} "
                            f"with {channels} channel(s)")
        return np.ascontiguousarray(image[off:off + side, off:off + side], np.float32)
    return np.broadcast_to(mean_of_channels(transform.mean_values, channels), (side, side, channels))
