"""Opens the feeds that data layers read: this rank's share of the data, with the same random numbers on every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from scaffe.data.feeds.feed import Feed
from scaffe.data.feeds.layer_feed import GivenVisits, ReaderOptions, Share, layer_batch_size, open_layer_feed
from scaffe.data.feeds.portion_feed import PortionFeed
from scaffe.errors import UserError
from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TRAIN
from scaffe.layers.base.random import Stream


def feed_opener(share: Share, seed: int, options: ReaderOptions) -> Callable[[Any, Context], Feed | PortionFeed]:
    """``Context.open_feed`` for one net.

    Args:
        share: this rank's share; its start may be moved until the first batch is requested.
        seed: the run's seed, the same on every rank, so that crops and mirroring do not depend on the rank.
        options: how the feeds read.
    """
    common = Stream(seed)

    def open_feed(param: Any, context: Context) -> Feed | PortionFeed:
        batch_size = layer_batch_size(param)
        if context.phase == TRAIN:
            share.batch = batch_size

        def draw() -> int:
            context.rng.skip(1)
            return int(common.draw(1)[0])

        on_host = options.on_host and partial(_of_layer, param.name, options.on_host)
        reading = replace(options, allocate=options.allocate or context.kernels.batch_allocator(), on_host=on_host)
        if context.phase == TRAIN and share.portion is not None:
            return PortionFeed(_anywhere(param, draw, reading), share.portion or batch_size, share.cache_bytes)
        if context.phase == TRAIN and (fault := share.fault(batch_size)):
            raise UserError(f"{fault}; change it, or train with -scal weak")
        reading = replace(reading, gives_pixels=True, on_choice=_named(param.name, reading.on_choice, context.phase))
        return open_layer_feed(param, context.phase, share, draw, reading)

    return open_feed


def _of_layer(layer: str, say: Callable[[str], None], why: str) -> None:
    say(f"layer {layer}: {why}")


def _named(layer: str, on_choice: Callable[[str], None] | None, phase: int) -> Callable[[str], None] | None:
    """What says how many readers a layer's feed has chosen: of the training net alone."""
    if on_choice is None or phase != TRAIN:
        return None
    return lambda choice: on_choice(f"Layer {layer} reads with {choice}")


def _anywhere(param: Any, draw: Callable[[], int],
              reading: ReaderOptions) -> Callable[[Iterator[np.ndarray], int], Feed]:
    """A function that opens a layer's feed at any visits, each time with the same random numbers."""
    drawn: list[int] = []

    def open_at(visits: Iterator[np.ndarray], n_elems: int) -> Feed:
        before = iter(list(drawn))

        def again() -> int:
            number = next(before, None)
            if number is None:
                number = draw()
                drawn.append(number)
            return number

        return open_layer_feed(param, TRAIN, GivenVisits(visits, n_elems), again, reading)

    return open_at
