"""Builds nets, and the contexts and feeds they need, for the commands: from files and flags."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.data.feeds.feed import Feed
from scaffe.data.feeds.layer_feed import GivenVisits, ReaderOptions, Share, layer_batch_size, open_layer_feed
from scaffe.data.feeds.portion_feed import PortionFeed
from scaffe.errors import UserError
from scaffe.flags import MOST, Flags, whole
from scaffe.layers.base.context import Context, ParamMemory
from scaffe.layers.base.layer import TEST, TRAIN
from scaffe.layers.base.random import Stream
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Parts
from scaffe.nets.summary import log_values
from scaffe.proto import caffe_pb2


def feed_opener(share: Share, seed: int, options: ReaderOptions) -> Callable[[Any, Context], Feed | PortionFeed]:
    """``Context.open_feed`` for one net.

    Args:
        share: this rank's share; its start may be moved until the first batch is requested.
        seed: the run's seed, the same on every rank, so that crops and mirroring do not depend on the rank.
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


PHASES = {"TRAIN": TRAIN, "TEST": TEST}
READERS = ReaderOptions()
FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Selection:
    """Which layers of a prototxt belong to the net.

    Attributes:
        phase, level, stages: as in Caffe's NetState, to which include and exclude rules refer. The stages of the
            net's own ``state`` are added; its level is used if ``level`` is None.
    """

    phase: int
    level: int | None = 0
    stages: tuple[str, ...] = ()

    @staticmethod
    def of(options: Namespace, phase: str) -> Selection:
        """Read the flags that ``add_state_flags`` adds. ``phase``: TRAIN or TEST."""
        return Selection(PHASES[phase], options.level, tuple(filter(None, options.stage.split(","))))


def add_state_flags(flags: Flags) -> None:
    """Add -level and -stage to a command's flags."""
    flags.flag("level", 0, "the net state's level", kind=whole(-MOST - 1))
    flags.flag("stage", "", "the net state's stages", metavar="NAME,...")


def seed_of(random_seed: int) -> int:
    """Caffe's ``random_seed``; if it is negative, 32 random bits from the operating system."""
    return random_seed if random_seed >= 0 else int.from_bytes(os.urandom(4), "little")


def make_net(message: Any, selection: Selection, context: Context, source: str, trained: Net | None = None,
             shared: Callable[[Any], tuple[Any, Parts]] | None = None) -> Net:
    """Prepare and build a net. Raises UserError, one line that names the source and the layer.

    Args:
        context: what the layers use in common; its phase is set to the selection's.
        trained: for a test net: the net whose parameters it uses.
        shared: where ranks share the layers: prepared message → this rank's, and its parts.
    """
    context.phase = selection.phase
    try:
        prepared = graph.prepare(message, selection.phase, selection.level, list(selection.stages))
        prepared, parts = (prepared, None) if shared is None else shared(prepared)
        return build_net(prepared, context, trained, parts)
    except UserError as error:
        text = str(error)
        raise UserError(text if text.startswith(source) else f"{source}: {text}") from error


def make_context(kernels: Any, rng: Stream, share: Share, seed: int, readers: ReaderOptions = READERS,
                 dtype: np.dtype = FLOAT32) -> Context:
    """What the layers of one net use in common; ``make_net`` sets the phase."""
    return Context(TRAIN, kernels, dtype, rng, feed_opener(share, seed, readers), share.ranks)


def net_from_file(path: str, selection: Selection, kernels: Any, share: Share,
                  readers: ReaderOptions = READERS, dtype: np.dtype = FLOAT32,
                  memory: ParamMemory | None = None) -> Net:
    """A net from a prototxt, with a random seed, for commands that run a net without a solver. Raises UserError, one
    line that names the file.

    Args:
        memory: where its parameters are made; None: in the backend's.
    """
    seed = seed_of(-1)
    context = make_context(kernels, Stream(seed), share, seed, readers, dtype)
    context.param_memory = memory
    return net_by_itself(path, selection, context)


def net_by_itself(path: str | Path, selection: Selection, context: Context) -> Net:
    """As ``net_from_file``, with a given context. The net logs its values if its own ``debug_info`` is set; under a
    solver, the solver's ``debug_info`` decides instead."""
    message = graph.read_net(path)
    net = make_net(message, selection, context, str(path))
    if message.debug_info:
        log_values(net)
    return net


def message_of(net: Net) -> caffe_pb2.NetParameter:
    """A net's layers, those of its phase, without the Split layers that building inserts. Returns a NetParameter in
    today's form; its layers have no rules of phases."""
    message = caffe_pb2.NetParameter(name=net.name)
    unsplit: dict[str, str] = {}
    for node in net.nodes:
        if node.param.type == "Split":
            unsplit |= dict.fromkeys(node.top_names, node.bottom_names[0])
            continue
        layer = message.layer.add()
        layer.CopyFrom(node.param)
        layer.ClearField("include")
        layer.ClearField("exclude")
        layer.bottom[:] = [unsplit.get(name, name) for name in layer.bottom]
    return message
