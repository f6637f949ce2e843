"""Messages as seven numbers, as mailboxes carry them. Pure."""

from __future__ import annotations

import numpy as np

from scaffe.collectives.server.messages import Clock, Leave, Read, Ready, Release, ToShard, ToWorker, Update

UPDATE, CLOCK, READ, LEAVE, READY, RELEASE, STOP = range(7)
N_NUMBERS = 7


def encode(message: ToShard | ToWorker | None, sender: int) -> np.ndarray:
    """Encode one message.

    Args:
        message: the message; None tells the shard to stop.
        sender: number of the worker or shard that sends it.

    Returns:
        int64 (7,): kind, sender, batch, clock, age, and two float64 values stored as their bit patterns.
    """
    numbers = np.zeros(N_NUMBERS, np.int64)
    numbers[1] = sender
    if isinstance(message, Update):
        numbers[[0, 2, 3]] = UPDATE, message.batch, message.clock
        numbers[5:].view(np.float64)[:] = message.settings
    elif isinstance(message, Clock):
        numbers[[0, 3]] = CLOCK, message.clock
    elif isinstance(message, Read):
        numbers[[0, 2, 3]] = READ, message.batch, message.clock
    elif isinstance(message, Leave):
        numbers[0] = LEAVE
    elif isinstance(message, Ready):
        numbers[[0, 2, 3, 4]] = READY, message.batch, message.clock, message.age
    elif isinstance(message, Release):
        numbers[[0, 2]] = RELEASE, message.batch
    else:
        numbers[0] = STOP
    return numbers


def decode(numbers: np.ndarray) -> tuple[int, ToShard | ToWorker | None]:
    """The inverse of ``encode``. Returns (sender, message)."""
    kind, sender, batch, clock, age = numbers[:5].tolist()
    if kind == UPDATE:
        rate, iteration = numbers[5:].view(np.float64).tolist()
        return sender, Update(sender, batch, clock, (rate, iteration))
    if kind == CLOCK:
        return sender, Clock(sender, clock)
    if kind == READ:
        return sender, Read(sender, batch, clock)
    if kind == LEAVE:
        return sender, Leave(sender)
    if kind == READY:
        return sender, Ready(batch, clock, age)
    return sender, Release(batch) if kind == RELEASE else None
