"""The messages between workers and shards. They carry numbers only; rows lie in the memory that a node's ranks share.

From one node to another the rows of an ``Update``, a ``Ready``, a ``Copy`` or a ``Final`` follow the message.
"""

from __future__ import annotations

from dataclasses import dataclass

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
class Leave:
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

    piece: int


@dataclass(frozen=True, slots=True)
class Kept:
    """To a shard: the piece is in its place in the second copy."""

    piece: int


ToShard = Update | Clock | Read | Leave
ToWorker = Ready | Release
Message = ToShard | ToWorker | Final | Copy | Kept
