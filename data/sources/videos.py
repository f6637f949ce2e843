"""Clips of videos, named by a list file (C3D's VideoData layer, facebookarchive/C3D, v1.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scaffe.data.records.decode import Colour, check_resize, opencv, read_image
from scaffe.data.sources.image_list import read_lines
from scaffe.errors import DataError


@dataclass(frozen=True)
class ClipList:
    """What the list names and how clips are read.

    Attributes:
        path: the list file. A line is ``video start label``; without a start if ``jitters`` and not ``are_frames``.
            With both, the second word is the video's number of frames.
        root: prefix of every path, joined without a slash.
        are_frames: a video is a folder of frames 000001.jpg, 000002.jpg, ...; else a file.
        jitters: clips begin at a random frame; in testing, those of folders begin at frame 0.
        n_frames: frames of a clip.
        rate: every ``rate``-th frame of the video is taken.
        most_rate: the rate is drawn from 1 to this for each clip; 0: it is ``rate``.
        height, width: pixels to resize frames to; 0 and 0 keeps their own size.
        n_labels: 0: one label a video; else labels are a list with commas, shown as ``n_labels`` zeros and ones.
        training: whether the phase is TRAIN.
    """

    path: str
    root: str
    are_frames: bool
    jitters: bool
    n_frames: int
    rate: int
    most_rate: int
    height: int
    width: int
    n_labels: int
    training: bool


@dataclass(frozen=True)
class Clip:
    """One line of a list: the video, its second word (0 if there is none) and its labels."""

    video: str
    start: int
    labels: tuple[int, ...]


class VideoClips:
    """Clips by record number.

    Args:
        clips: what to read.

    Attributes:
        n_records: number of clips.
        n_draws: random numbers that a clip takes: for its rate, then for its start; each only if asked for.

    Raises:
        DataError: the list cannot be read, or an option does not fit.
    """

    def __init__(self, clips: ClipList) -> None:
        check_resize(clips.height, clips.width, "new_height", "new_width")
        if clips.n_frames < 1 or clips.rate < 1:
            raise DataError(f"new_length and sampling_rate are at least 1, got {clips.n_frames} and {clips.rate}")
        self._list, self._clips = clips, read_clips(clips)
        self.n_records = len(self._clips)
        self.n_draws = int(clips.most_rate > 0) + int(clips.jitters)

    def read(self, record: int, draws: np.ndarray) -> np.ndarray:
        """One clip, uint8 (frames, height, width, 3), blue first. Raises DataError, with its path, if it is bad."""
        clips, clip = self._list, self._clips[record]
        numbers = iter(draws.tolist())
        rate = next(numbers) % clips.most_rate + 1 if clips.most_rate else clips.rate
        drawn = next(numbers) if clips.jitters else None
        path, n_seen = clips.root + clip.video, clips.n_frames * rate
        if clips.are_frames:
            start = clip.start if drawn is None else self._jittered(drawn, clip.start, n_seen, path)
            frames = [read_image(f"{path}/{i:06d}.jpg", Colour.BGR, clips.height, clips.width)
                      for i in range(start, start + n_seen, rate)]
        else:
            frames = read_frames(path, lambda n: self._first(clip, drawn, n, n_seen, path), n_seen, rate)
            frames = [self._resized(frame) for frame in frames]
        if any(frame.shape != frames[0].shape for frame in frames):
            raise DataError(f"{path}: frames differ in size; give new_height and new_width")
        return np.stack(frames)

    def label(self, record: int) -> np.ndarray:
        """The label, float32 (), or zeros and ones, float32 (n_labels,)."""
        labels, n_labels = self._clips[record].labels, self._list.n_labels
        if not n_labels:
            return np.array(labels[0], np.float32)
        shown = np.zeros(n_labels, np.float32)
        shown[list(labels)] = 1
        return shown

    def name_of(self, record: int) -> str:
        """The video's path."""
        return self._list.root + self._clips[record].video

    def _jittered(self, drawn: int, n_there: int, n_seen: int, path: str) -> int:
        """The first frame of a clip of a folder of ``n_there`` frames, counted from 1."""
        _check_length(n_there, n_seen, path)
        return drawn % (n_there - n_seen + 1) + 1 if self._list.training else 0

    def _first(self, clip: Clip, drawn: int | None, n_there: int, n_seen: int, path: str) -> int:
        """The first frame of a clip of a file of ``n_there`` frames, counted from 0."""
        start = clip.start if drawn is None else 0
        _check_length(n_there - start, n_seen, path)
        return start if drawn is None else drawn % (n_there - n_seen + 1)

    def _resized(self, frame: np.ndarray) -> np.ndarray:
        if not self._list.height:
            return frame
        resized: np.ndarray = opencv().resize(frame, (self._list.width, self._list.height))
        return resized


def read_clips(clips: ClipList) -> list[Clip]:
    """Read a list. Raises DataError, with the line's number, if a line does not have its form."""
    form = ("video", "label") if clips.jitters and not clips.are_frames else ("video", "start", "label")
    return [_clip(line.split(), form, clips.n_labels, f"{clips.path}:{number}")
            for number, line in read_lines(clips.path)]


def _clip(words: list[str], form: tuple[str, ...], n_labels: int, where: str) -> Clip:
    if len(words) != len(form):
        raise DataError(f"{where}: expected '{' '.join(form)}', got {len(words)} word(s)")
    try:
        labels = tuple(int(word) for word in (words[-1].split(",") if n_labels else words[-1:]))
        start = int(words[1]) if len(form) == 3 else 0
    except ValueError:
        raise DataError(f"{where}: expected '{' '.join(form)}' with whole numbers") from None
    if start < 0 or n_labels and not all(0 <= label < n_labels for label in labels):
        raise DataError(f"{where}: starts are at least 0 and labels below num_of_labels {n_labels}")
    return Clip(words[0], start, labels)


def read_frames(path: str | Path, first_of: Callable[[int], int], n_seen: int, rate: int) -> list[np.ndarray]:
    """Frames of a video file.

    Args:
        path: the file.
        first_of: the number of frames in the file → the first frame to take, counted from 0.
        n_seen: frames of the file that the clip covers.
        rate: every ``rate``-th of them is taken.

    Returns:
        uint8 (height, width, 3) each, blue first.

    Raises:
        DataError: the file cannot be opened, or ends too soon.
    """
    cv2 = opencv()
    video = cv2.VideoCapture(str(path))
    try:
        if not video.isOpened():
            raise DataError(f"{path}: not a video that OpenCV reads")
        first = first_of(int(video.get(cv2.CAP_PROP_FRAME_COUNT)))
        frames: list[np.ndarray] = []
        for i in range(first + n_seen):  # in order, since going to a frame is not exact in many formats
            good, frame = video.grab(), None
            if good and i >= first and (i - first) % rate == 0:
                good, frame = video.retrieve()
            if frame is not None:
                frames.append(frame)
            if not good:
                raise DataError(f"{path}: ends at frame {i}, the clip goes on to frame {first + n_seen - 1}")
        return frames
    finally:
        video.release()


def _check_length(n_there: int, n_seen: int, path: str) -> None:
    if n_there < n_seen:
        raise DataError(f"{path}: has {max(n_there, 0)} frames from the clip's first on, new_length and sampling_rate "
                        f"take {n_seen}")
