"""Makes the feed of C3D's VideoData layer from its message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from scaffe.data.errors import DataError
from scaffe.data.feeds.feed import Feed, Plan, ReaderOptions
from scaffe.data.feeds.parameters import Draw, batch_size_of, list_order, read_mean_array
from scaffe.data.feeds.sample_feed import sample_feed
from scaffe.data.order.share import TRAIN, Share
from scaffe.data.records.clip_transform import ClipTransform
from scaffe.data.records.transform import TransformOptions
from scaffe.data.sources.videos import ClipList, VideoClips
from scaffe.proto.byte_text import path_of


def open_video_data(param: Any, phase: int, share: Share, draw: Draw, options: ReaderOptions) -> Feed:
    """The feed of a VideoData layer: clips (n, 3, frames, height, width) and, for a second top, their labels.

    Raises:
        DataError: an option or file does not fit.
    """
    data, message = param.video_data_param, param.transform_param
    if data.show_data:
        raise DataError("show_data opens windows on the screen, which VideoData does not do here")
    if data.use_multiple_label and not data.HasField("num_of_labels"):
        raise DataError("use_multiple_label goes with num_of_labels")
    clips = VideoClips(ClipList(
        path_of(data.source), path_of(data.root_folder), data.use_image, data.use_temporal_jitter, data.new_length,
        data.sampling_rate, data.max_sampling_rate if data.use_sampling_rate_jitter else 0, data.new_height,
        data.new_width, data.num_of_labels if data.use_multiple_label else 0, phase == TRAIN))
    transform = TransformOptions(message.scale, message.mirror, message.crop_size, tuple(message.mean_value),
                                 random_crop=phase == TRAIN)
    if message.HasField("mean_file"):
        transform = replace(transform, mean_image=read_mean_array(path_of(message.mean_file), 4))
    sampler = _ClipSampler(clips, ClipTransform(transform), len(param.top))
    order, n = list_order(data, clips.n_records, draw), batch_size_of(data)
    return sample_feed(sampler, Plan(share.visits(phase, n), share.batch_elems(phase, n), order, draw()), options)


class _ClipSampler:
    """Reads and transforms clips; see ``sample_feed.Sampler``."""

    def __init__(self, clips: VideoClips, transform: ClipTransform, n_tops: int) -> None:
        self._clips, self._transform, self._n_tops = clips, transform, n_tops
        self.n_records = clips.n_records
        self.draws_per_visit = clips.n_draws + transform.draws_per_visit

    def make(self, record: int, draws: np.ndarray) -> list[np.ndarray]:
        """One clip, float32 (frames, height, width, 3), and its label. Raises DataError if the clip is bad."""
        pixels = self._clips.read(record, draws)
        try:
            clip = self._transform.apply(pixels, draws[self._clips.n_draws:])
        except DataError as error:
            raise DataError(f"{self._clips.name_of(record)}: {error}") from None
        return [clip, self._clips.label(record)][: self._n_tops]
