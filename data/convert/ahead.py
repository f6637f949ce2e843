"""Results of several threads, in order and computed ahead: the converters' way to keep all cores busy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")
AHEAD_BYTES = 1 << 26


def map_ahead(pool: ThreadPoolExecutor, function: Callable[[T], U], items: Iterator[T], least: int, most: int = 0,
              n_bytes: Callable[[U], int] = lambda result: 0) -> Iterator[U]:
    """The function's results in the items' order. Threads compute the next ones while the caller works on one.

    Args:
        pool: the threads.
        function: any of them may call it.
        items: its arguments; taken by the caller's thread.
        least: how many results are computed ahead at the least.
        most: and at the most, until they take AHEAD_BYTES; below ``least``: no more than that.
        n_bytes: of a result.
    """
    pending: deque[Future[U]] = deque(pool.submit(function, item) for item in islice(items, least))
    largest = 1
    while pending:
        result = pending.popleft().result()
        largest = max(largest, n_bytes(result))
        room = max(min(most, AHEAD_BYTES // largest), least) - len(pending)
        pending.extend(pool.submit(function, item) for item in islice(items, max(room, 0)))
        yield result
