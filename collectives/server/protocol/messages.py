"""The messages between workers and shards. They carry numbers only; rows lie in the memory that a node's ranks share.

From one node to another the rows of an ``Update``, a ``Ready``, a ``Copy`` or a ``Final`` follow the message.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scaffe.collectives.messages import Codec, Form, message

Source = tuple[int, int]
"""What is sent between nodes separately: a batch, and the worker whose rows they are, or the node's label."""
Settings = tuple[float, float]
"""Parameters of one update: a learning rate, and how many iterations were done before."""


@message
class Update:
    """A worker updated a batch's rows in its iteration ``clock``."""

    worker: int
    batch: int
    clock: int
    settings: Settings = (1.0, 0.0)

    @property
    def rate(self) -> float:
        return self.settings[0]

    @property
    def iteration(self) -> float:
        return self.settings[1]


@message
class Clock:
    """A worker finished its iteration ``clock``."""

    worker: int
    clock: int


@message
class Read:
    """A worker in its iteration ``clock`` wants a batch's rows, with every worker's updates of iterations < ``age``."""

    worker: int
    batch: int
    clock: int
    age: int


@message
class WorkerLeft:
    """A worker makes no more updates: nobody waits for it any longer."""

    worker: int


@message
class Ready:
    """To a worker: the rows it asked for in ``clock`` now include every worker's updates of iterations < ``age``."""

    batch: int
    clock: int
    age: int


@message
class Release:
    """To a worker: its update of the batch has been applied and the update buffer may be reused."""

    batch: int


@message
class Final:
    """To a node, once all workers have left: the shard's final part of a table follows."""

    table: int


@message
class Copy:
    """To the node that keeps a shard's second copy: a chunk of the shard's histories follows."""

    chunk: int


@message
class Kept:
    """To a shard: its second copy has the chunk."""

    chunk: int


ToShard = Update | Clock | Read | WorkerLeft
ToWorker = Ready | Release
Message = ToShard | ToWorker | Final | Copy | Kept


class Letter(NamedTuple):
    """A message with its sender and receiver: numbers of a worker and a shard, or of a shard and a worker."""

    sender: int
    receiver: int
    message: Message | None


N_NUMBERS = 7
_CODEC = Codec(N_NUMBERS, [  # columns: batch (or table, or chunk), clock, age, rate, iteration
    Form(Update, "2q8x2d", ("batch", "clock", "rate", "iteration"),
         lambda worker, batch, clock, rate, iteration: Update(worker, batch, clock, (rate, iteration))),
    Form(Clock, "8xq", ("clock",), Clock),
    Form(Read, "3q", ("batch", "clock", "age"), Read),
    Form(WorkerLeft, "", (), WorkerLeft),
    Form(Ready, "3q", ("batch", "clock", "age"), lambda _, *numbers: Ready(*numbers)),
    Form(Release, "q", ("batch",), lambda _, batch: Release(batch)),
    Form(Final, "q", ("table",), lambda _, table: Final(table)),
    None,
    Form(Copy, "q", ("chunk",), lambda _, chunk: Copy(chunk)),
    Form(Kept, "q", ("chunk",), lambda _, chunk: Kept(chunk))])


def encode(message: Message | None, sender: int, receiver: int = 0) -> np.ndarray:
    """Packs one message. ``message``: the message; None says that the sender, a shard, is done. Returns int64 (7,);
    float64 values are in it by their bit patterns."""
    return _CODEC.encode(message, sender, receiver)


def decode(numbers: np.ndarray) -> Letter:
    """The inverse of ``encode``."""
    return Letter(*_CODEC.decode(numbers))
