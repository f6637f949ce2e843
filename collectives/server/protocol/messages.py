"""The messages between workers and shards. They carry numbers only; rows lie in the memory that a node's ranks share.

From one node to another the rows of an ``Update``, a ``Ready``, a ``Copy`` or a ``Final`` follow the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np

Source = tuple[int, int]
"""What goes from node to node by itself: a batch, and the worker whose rows they are, or the node's label."""
Settings = tuple[float, float]
"""What a rule is told of one update: a learning rate, and how many iterations were done before."""


@dataclass(frozen=True, slots=True)
class Update:
    """A worker updated a batch's rows in its iteration ``clock``."""

    worker: int
    batch: int
    clock: int
    settings: Settings = (1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Clock:
    """A worker finished its iteration ``clock``."""

    worker: int
    clock: int


@dataclass(frozen=True, slots=True)
class Read:
    """A worker in its iteration ``clock`` wants a batch's rows, with every worker's updates of iterations < ``age``."""

    worker: int
    batch: int
    clock: int
    age: int


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker makes no more updates: from now on nobody waits for it."""

    worker: int


@dataclass(frozen=True, slots=True)
class Ready:
    """To a worker: the rows it asked for in ``clock`` now include every worker's updates of iterations < ``age``."""

    batch: int
    clock: int
    age: int


@dataclass(frozen=True, slots=True)
class Release:
    """To a worker: its update of the batch has been applied and the update buffer may be reused."""

    batch: int


@dataclass(frozen=True, slots=True)
class Final:
    """To a node, once all workers have left: the shard's part of a table follows, as it is now and remains."""

    table: int


@dataclass(frozen=True, slots=True)
class Copy:
    """To the node that keeps a shard's second copy: a piece of the shard's histories follows."""

    chunk: int


@dataclass(frozen=True, slots=True)
class Kept:
    """To a shard: the piece is in its place in the second copy."""

    chunk: int


ToShard = Update | Clock | Read | WorkerLeft
ToWorker = Ready | Release
Message = ToShard | ToWorker | Final | Copy | Kept


UPDATE, CLOCK, READ, WORKER_LEFT, READY, RELEASE, FINAL, STOP, COPY, KEPT = range(10)
N_NUMBERS = 7
_LINE = Struct("=q2i3q2d")


class Letter(NamedTuple):
    """A message with its sender and receiver: numbers of a worker and a shard, or of a shard and a worker."""

    sender: int
    receiver: int
    message: Message | None


def encode(message: Message | None, sender: int, receiver: int = 0) -> np.ndarray:
    """Encode one message.

    Args:
        message: the message; None says that the sender, a shard, is done.
        sender: number of the worker or shard that sends it.
        receiver: number of the shard or worker that it is for.

    Returns:
        int64 (7,): kind; sender and receiver, int32 each; batch, clock, age, and two float64 values stored as their
        bit patterns.
    """
    batch = clock = age = 0
    rate = iteration = 0.0
    kind = STOP
    if isinstance(message, Update):
        kind, batch, clock, (rate, iteration) = UPDATE, message.batch, message.clock, message.settings
    elif isinstance(message, Clock):
        kind, clock = CLOCK, message.clock
    elif isinstance(message, Read):
        kind, batch, clock, age = READ, message.batch, message.clock, message.age
    elif isinstance(message, WorkerLeft):
        kind = WORKER_LEFT
    elif isinstance(message, Ready):
        kind, batch, clock, age = READY, message.batch, message.clock, message.age
    elif isinstance(message, Release):
        kind, batch = RELEASE, message.batch
    elif isinstance(message, Final):
        kind, batch = FINAL, message.table
    elif isinstance(message, Copy):
        kind, batch = COPY, message.chunk
    elif isinstance(message, Kept):
        kind, batch = KEPT, message.chunk
    numbers = np.empty(N_NUMBERS, np.int64)
    _LINE.pack_into(numbers.data, 0, kind, sender, receiver, batch, clock, age, rate, iteration)
    return numbers


def decode(numbers: np.ndarray) -> Letter:
    """The inverse of ``encode``."""
    kind, sender, receiver, batch, clock, age, rate, iteration = _LINE.unpack(numbers.data)
    message: Message | None = None
    if kind == UPDATE:
        message = Update(sender, batch, clock, (rate, iteration))
    elif kind == CLOCK:
        message = Clock(sender, clock)
    elif kind == READ:
        message = Read(sender, batch, clock, age)
    elif kind == WORKER_LEFT:
        message = WorkerLeft(sender)
    elif kind == READY:
        message = Ready(batch, clock, age)
    elif kind == RELEASE:
        message = Release(batch)
    elif kind == FINAL:
        message = Final(batch)
    elif kind == COPY:
        message = Copy(batch)
    elif kind == KEPT:
        message = Kept(batch)
    return Letter(sender, receiver, message)
