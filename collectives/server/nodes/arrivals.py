"""The order in which a shard acts on what comes from another node: rows may be late, messages do not overtake them."""

from __future__ import annotations

from collections import deque

from scaffe.collectives.server.mail.messages import Clock, Leave, Read, ToShard, Update


class Arrivals:
    """What has come over one link: pushes, announced in order, whose rows arrive in any order; other messages."""

    def __init__(self) -> None:
        self._queue: deque[ToShard] = deque()

    def announced(self, update: Update) -> None:
        """A push begins; its rows follow."""
        self._queue.append(update)

    def complete(self, update: Update) -> list[ToShard]:
        """A push's rows are there. Returns what the shard may act on now, in this order."""
        self._queue.remove(update)
        return [update, *self._front()]

    def came(self, message: Clock | Read | Leave) -> list[ToShard]:
        """A message without rows. Returns what the shard may act on now: nothing while earlier pushes are open."""
        self._queue.append(message)
        return self._front()

    def _front(self) -> list[ToShard]:
        found: list[ToShard] = []
        while self._queue and not isinstance(self._queue[0], Update):
            found.append(self._queue.popleft())
        return found
