"""Where a run's readers decode images: flag, and the choice of a decoder."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from scaffe.data.feeds.feed import ReaderOptions
from scaffe.data.records.decode import opencv
from scaffe.errors import DataError, LayerError
from scaffe.flags import Flags
from scaffe.log import info

HOST, GPU = "host", "gpu"
PROBE = 16  # rows and columns of an image that a decoder must decode before it is used


def add_decode_flag(flags: Flags) -> None:
    """Add -decode to a command's flags."""
    flags.flag("decode", HOST, "where JPEG files are decoded", choices=(HOST, GPU))


def on_host(options: Namespace) -> Namespace:
    """The same options for a net that is made to look at, which decodes on the host and says nothing of it."""
    return Namespace(**vars(options) | {"decode": HOST})


class Decoding:
    """Where one run's images are decoded; says once why that is not where ``-decode gpu`` wants it.

    Args:
        place: HOST or GPU.
        kernels: the backend that the nets compute with.
        say: logs a line.
    """

    def __init__(self, place: str, kernels: Any, say: Callable[[str], None] = info) -> None:
        self._say: Callable[[str], None] | None = say
        self._device: Any = None
        if place == GPU:
            try:
                self._device = _decoder(kernels)
            except LayerError as error:
                self.on_host(str(error))

    @classmethod
    def of(cls, options: Namespace, kernels: Any) -> Decoding:
        """Read the flag that ``add_decode_flag`` adds; a command that lacks it decodes on the host."""
        return cls(vars(options).get("decode", HOST), kernels)

    def options(self, reading: ReaderOptions) -> ReaderOptions:
        """Options for feeds that decode there."""
        return replace(reading, device=self._device, on_host=self.on_host)

    def on_host(self, why: str) -> None:
        """Log why images are decoded on the host; only the first time in a run."""
        if self._say is not None:
            self._say(f"-decode gpu: images are decoded on the host: {why}")
            self._say = None


def _decoder(kernels: Any) -> Any:
    """The backend's decoder, which has decoded an image. Raises LayerError if there is none."""
    decoder = kernels.image_decoder()
    try:
        file = opencv().imencode(".jpg", np.zeros((PROBE, PROBE, 3), np.uint8))[1].reshape(-1)
    except DataError:  # without OpenCV there is nothing to try it with
        return decoder
    out, size = decoder.empty(PROBE * PROBE * 3).reshape(1, PROBE, PROBE, 3), np.full((1, 2), PROBE)
    if not decoder.decode([file], size, np.zeros((1, 2), np.int64), np.zeros(1, np.int64), out).all():
        raise LayerError(f"the decoder cannot be used: {decoder.first_error or 'it decodes no JPEG file'}")
    return decoder
