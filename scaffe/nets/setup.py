"""What the commands build from files and flags: contexts, nets and their readers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.data.feeds.layer_feed import ReaderOptions, Share
from scaffe.errors import UserError
from scaffe.layers.base.layer import TEST, TRAIN, Context
from scaffe.layers.base.random import Stream
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.debug_info import log_values
from scaffe.nets.feeds import feed_opener
from scaffe.nets.net import Net

PHASES = {"TRAIN": TRAIN, "TEST": TEST}
READERS = ReaderOptions()
FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Selection:
    """Which layers of a prototxt make the net: Caffe's NetState.

    Attributes:
        phase, level, stages: as in Caffe.
    """

    phase: int
    level: int = 0
    stages: tuple[str, ...] = ()


def seed_of(random_seed: int) -> int:
    """Caffe's random_seed, or one from the system where it is negative."""
    return random_seed if random_seed >= 0 else int.from_bytes(os.urandom(4), "little")


def make_net(message: Any, selection: Selection, context: Context, source: str, trained: Net | None = None) -> Net:
    """Prepare and build a net for one selection; mistakes name the source (the file)."""
    context.phase = selection.phase
    try:
        prepared = graph.prepare(message, selection.phase, selection.level, list(selection.stages))
        return build_net(prepared, context, trained)
    except UserError as error:
        text = str(error)
        raise UserError(text if text.startswith(source) else f"{source}: {text}") from error


def make_context(kernels: Any, rng: Stream, share: Share, seed: int, readers: ReaderOptions = READERS,
                 dtype: np.dtype = FLOAT32) -> Context:
    """What a net of this rank lends to its layers; ``make_net`` sets the phase."""
    return Context(TRAIN, kernels, dtype, rng, feed_opener(share, seed, readers))


def net_from_file(path: str, selection: Selection, kernels: Any, share: Share,
                  readers: ReaderOptions = READERS, dtype: np.dtype = FLOAT32) -> Net:
    """A net by itself, for the commands that only run one."""
    seed = seed_of(-1)
    context = make_context(kernels, Stream(seed), share, seed, readers, dtype)
    return net_by_itself(path, selection, context)


def net_by_itself(path: str | Path, selection: Selection, context: Context) -> Net:
    """A net that no solver runs, which logs its values where its ``debug_info`` says so (a solver's own decides)."""
    message = graph.read_net(path)
    net = make_net(message, selection, context, str(path))
    if message.debug_info:
        log_values(net)
    return net
