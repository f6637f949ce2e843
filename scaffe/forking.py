"""Makes this package's objects usable in a child of os.fork, which has one thread and would inherit taken locks.

Threads and locks are made anew in the child, and signal handlers are restored. multiprocessing, web servers and users'
loaders fork; ``subprocess`` does not run these actions.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

Action = Callable[[], object]
Handler = Any  # what signal.signal takes and gives
Lockable = Any  # a lock that the thread that has it may take again: RLock, Condition

_before: list[Action] = []
_renewals: dict[int, Callable[[], Action | None]] = {}  # in the order in which they were made
_locks: weakref.WeakSet[Lockable] = weakref.WeakSet()
_taken: list[Lockable] = []
_turn = threading.RLock()  # of the thread that forks
_generation = [0]
_handlers: dict[int, tuple[Handler, Handler]] = {}  # of signals: ours, and the one before all of ours
_masks: list[set[int]] = []  # of signals that were blocked before a fork


def generation() -> int:
    """How many forks lie between this process and the one that imported scaffe: 0 there."""
    return _generation[0]


def before_fork(action: Action) -> None:
    """Call ``action()`` before each fork, on the thread that forks. It raises nothing."""
    _before.append(action)


def in_child(action: Action) -> None:
    """Call ``action()`` in each forked child, before anything else runs there.

    Args:
        action: a method does not keep its object alive; anything else is kept.
    """
    if not isinstance(action, MethodType):
        _renewals[id(action)] = lambda: action
        return
    # Not WeakMethod: at the interpreter's end its callback may find the WeakMethod itself gone, and complains.
    function, renewals = action.__func__, _renewals
    owner = weakref.ref(action.__self__, lambda gone: renewals.pop(id(gone), None))
    renewals[id(owner)] = lambda: None if (alive := owner()) is None else MethodType(function, alive)


def hold(lock: Lockable) -> None:
    """Have this lock taken while a process forks, so that what it guards is whole in the child, and the lock free.

    Nobody who has it may wait for another such lock, nor for long.
    """
    _locks.add(lock)


def set_handler(number: int, handler: Handler) -> Handler:
    """As ``signal.signal``, for this process alone: a forked child begins with what was there before any of ours.

    A loader process that caught SIGTERM as a rank does would not end when it is told to.
    """
    before = signal.signal(number, handler)
    ours, first = _handlers.get(number, (None, before))
    _handlers[number] = handler, first if before is ours else before
    return before


class Lock:
    """A lock that is free in a forked child, whoever had it."""

    def __init__(self) -> None:
        self._renew()
        in_child(self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def _begin() -> None:
    _turn.acquire()
    _taken.append(_turn)
    _masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, _handlers))  # until the child has its own handlers
    for action in list(_before):
        action()
    for lock in list(_locks):
        lock.acquire()
        _taken.append(lock)


def _end() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.pop())
    while _taken:
        _taken.pop().release()


def _renew() -> None:
    _generation[0] += 1
    for number, (ours, first) in _handlers.items():
        if signal.getsignal(number) is ours:
            signal.signal(number, signal.SIG_DFL if first is None else first)  # None: not Python's
    _handlers.clear()
    _end()
    for find in list(_renewals.values()):
        if (action := find()) is not None:
            action()


os.register_at_fork(before=_begin, after_in_parent=_end, after_in_child=_renew)
