"""Messages between a coordinator, the shards that hold vectors, and the replicas that read and add to them.

A message is a small picklable object; some carry an array besides (`payload`), which travels as it is.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from scaffe.collectives.messages import message
from scaffe.collectives.server.vectors.commands import Command

COORDINATOR, SHARD, REPLICA = "coordinator", "shard", "replica"


@message
class Message:
    """The base of all messages. ``to``: which of a rank's parts it is for; ``n_elems``: length of the array that comes
    with it; 0 for none."""

    to: ClassVar[str] = SHARD

    @property
    def n_elems(self) -> int:
        return getattr(self, "count", 0)


@message
class Do(Message):
    """Carry commands out, one after another; answer if ``ask`` is not negative."""

    commands: tuple[Command, ...]
    ask: int = -1


@message
class Answer(Message):
    """What the commands of an ``ask`` gave: for each that reduces, the numbers of the shard's blocks."""

    to = COORDINATOR
    ask: int
    found: tuple[tuple[np.ndarray, ...], ...]


@message
class Publish(Message):
    """From now on replicas read ``vector`` as step ``step``, and add to ``into``, which is made 0. ``in_order``:
    portions are added in the order of their numbers, whatever order they come in."""

    step: int
    vector: str
    into: str
    in_order: bool


@message
class Read(Message):
    """A replica asks for the vector of a step."""

    step: int


@message
class Values(Message):
    """A shard's interval of the vector of ``step``, or of a later one; or of the vector that ``Give`` asked for."""

    to = REPLICA
    step: int
    start: int
    count: int


@message
class Push(Message):
    """A replica's sum over a bundle of portions; it counts once the coordinator commits it."""

    step: int
    bundle: tuple[int, ...]
    count: int


@message
class Staged(Message):
    """A shard has its part of a replica's bundle."""

    to = COORDINATOR
    step: int
    replica: int
    bundle: tuple[int, ...]


@message
class Commit(Message):
    """Add a replica's bundle up now."""

    step: int
    replica: int
    bundle: tuple[int, ...]


@message
class Load(Message):
    """Take over the shard's interval of a vector."""

    vector: str
    count: int


@message
class Give(Message):
    """Send the shard's interval of a vector, as ``Values`` of step -1."""

    vector: str


@message
class Loaded(Message):
    """A shard has taken a vector over."""

    to = REPLICA
    vector: str


@message
class Close(Message):
    """No more messages come."""
