"""What workers and shards tell each other. Numbers only: rows lie in memory that both have, or travel beside."""

from __future__ import annotations

from dataclasses import dataclass

Settings = tuple[float, float]
"""What a rule is told of one update: a learning rate, and how many iterations were done before."""


@dataclass(frozen=True, slots=True)
class Update:
    """A worker's update of a batch's rows, made in iteration ``clock`` of its own."""

    worker: int
    batch: int
    clock: int
    settings: Settings = (1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Clock:
    """A worker has ended its iteration ``clock``."""

    worker: int
    clock: int


@dataclass(frozen=True, slots=True)
class Read:
    """A worker in its iteration ``clock`` wants a batch's rows."""

    worker: int
    batch: int
    clock: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A worker makes no more updates: nobody waits for it from here on."""

    worker: int


@dataclass(frozen=True, slots=True)
class Ready:
    """To a worker: the rows that it wanted in ``clock`` have all workers' updates of iterations before ``age``."""

    batch: int
    clock: int
    age: int


@dataclass(frozen=True, slots=True)
class Release:
    """To a worker: its update of the batch has been applied; the buffer is its own again."""

    batch: int


ToShard = Update | Clock | Read | Leave
ToWorker = Ready | Release
