"""The feeds that data layers read: this rank's share of the data, with the same random numbers on every rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scaffe.data.feeds.feed import Feed
from scaffe.data.feeds.layer_feed import ReaderOptions, Share, layer_batch_size, open_layer_feed
from scaffe.errors import UserError
from scaffe.layers.base.layer import TRAIN, Context
from scaffe.layers.base.random import Stream


def feed_opener(share: Share, seed: int, options: ReaderOptions) -> Callable[[Any, Context], Feed]:
    """``Context.open_feed`` for one net.

    Args:
        share: this rank's share; its start may be moved until the first batch is requested.
        seed: the run's seed, the same on every rank, so that crops and mirroring do not depend on the rank.
        options: how the feeds read.
    """
    common = Stream(seed)

    def open_feed(param: Any, context: Context) -> Feed:
        batch_size = layer_batch_size(param)
        if context.phase == TRAIN and not share.weak and batch_size % share.ranks:
            raise UserError(f"batch_size {batch_size} is not divisible by {share.ranks} ranks; "
                            "change it, or train with -scal weak")

        def draw() -> int:
            context.rng.skip(1)
            return int(common.draw(1)[0])

        return open_layer_feed(param, context.phase, share, draw, options)

    return open_feed
