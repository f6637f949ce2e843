"""What the commands build from files and flags: contexts, nets and their readers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from data.layer_feed import ReaderOptions, Share
from layers.layer import TEST, TRAIN, Context
from layers.random import Stream
from scaffe import graph
from scaffe.build import build_net
from scaffe.errors import UserError
from scaffe.feeds import feed_opener
from scaffe.log import warning
from scaffe.net import Net

PHASES = {"TRAIN": TRAIN, "TEST": TEST}
READERS = ReaderOptions()


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


def load_kernels(n_threads: int, gpus: str = "", wants_gpu: bool = False) -> Any:
    """The CPU's kernels, set to that many threads.

    There is no GPU backend yet: ``-gpu`` is refused with UserError, and a solver's ``solver_mode: GPU`` (Caffe's
    default, so in most people's files) runs on the CPU with a line in the log.
    """
    if gpus:
        raise UserError(f"-gpu {gpus}: there is no GPU backend yet; leave the flag out to run on the CPU")
    if wants_gpu:
        warning("solver_mode GPU: there is no GPU backend yet; running on the CPU")
    from layers.kernels import cpu

    cpu.set_threads(n_threads)
    return cpu


def make_net(message: Any, selection: Selection, context: Context, source: str, trained: Net | None = None) -> Net:
    """Prepare and build a net for one selection; mistakes name the source (the file)."""
    context.phase = selection.phase
    try:
        prepared = graph.prepare(message, selection.phase, selection.level, list(selection.stages))
        return build_net(prepared, context, trained)
    except UserError as error:
        text = str(error)
        raise UserError(text if text.startswith(source) else f"{source}: {text}") from error


def make_context(kernels: Any, rng: Stream, share: Share, seed: int, readers: ReaderOptions = READERS) -> Context:
    """What a net of this rank lends to its layers; ``make_net`` sets the phase."""
    return Context(TRAIN, kernels, rng=rng, open_feed=feed_opener(share, seed, readers))


def net_from_file(path: str, selection: Selection, kernels: Any, share: Share,
                  readers: ReaderOptions = READERS) -> Net:
    """A net by itself, for the commands that only run one."""
    seed = seed_of(-1)
    return make_net(graph.read_net(path), selection, make_context(kernels, Stream(seed), share, seed, readers), path)
