"""What the commands build from files and flags: contexts, nets and their readers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives.communicator import Communicator
from layers.layer import TEST, TRAIN, Context
from layers.random import Stream
from scaffe import graph
from scaffe.build import build_net
from scaffe.errors import UserError
from scaffe.feeds import Share, open_feed
from scaffe.net import Net

PHASES = {"TRAIN": TRAIN, "TEST": TEST}


@dataclass(frozen=True)
class Selection:
    """Which layers of a prototxt make the net: Caffe's NetState.

    Attributes:
        phase, level, stages: as in Caffe.
    """

    phase: int
    level: int = 0
    stages: tuple[str, ...] = ()


def seed_of(random_seed: int, rank: int) -> int:
    """Caffe's seed for a rank: random_seed + rank, or one from the system where it is negative."""
    return random_seed + rank if random_seed >= 0 else int.from_bytes(os.urandom(4), "little")


def load_kernels(n_threads: int) -> Any:
    """The CPU's kernels, set to that many threads."""
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


def make_context(kernels: Any, rng: Stream, share: Share, phase: int) -> Context:
    """What a net of this rank lends to its layers."""
    return Context(phase, kernels, rng=rng, open_feed=lambda param, context: open_feed(param, context, share))


def net_from_file(path: str, selection: Selection, communicator: Communicator, kernels: Any) -> Net:
    """A net by itself, for the commands that only run one."""
    if not Path(path).exists():
        raise UserError(f"{path}: no such file")
    context = make_context(kernels, Stream(seed_of(-1, 0)), Share(communicator.rank, communicator.n_ranks, by="batch"),
                           selection.phase)
    return make_net(graph.read_net(path), selection, context, path)
