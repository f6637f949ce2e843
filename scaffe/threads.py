"""Threads of ours, which all begin on the GPU that the process computes on, also those that call no CUDA themselves.

Python may free what another thread has left in any thread, an event of CUDA's too; a thread that has chosen no device
would make a context on GPU 0 for that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from scaffe.errors import UserError

_begin: list[Callable[[], None]] = []


def begin_with(action: Callable[[], None]) -> None:
    """What threads of ours do first from now on, in place of what was said before."""
    _begin[:] = [action]


class Thread(threading.Thread):
    """A thread that the process does not wait for when it ends.

    Args:
        target: what it does.
        name: shown in errors and timelines.
    """

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)

    def start(self) -> None:
        """See threading.Thread.

        Raises:
            UserError: the system has no room for one more.
        """
        try:
            super().start()
        except RuntimeError as error:
            if self.ident is not None:  # it has been started before
                raise
            raise UserError(f"thread {self.name!r} cannot start: expected room for its stack and one thread more, "
                            "reached a limit of the system (ulimit -v, ulimit -u)") from error

    def run(self) -> None:
        """See threading.Thread."""
        for action in _begin:
            with suppress(Exception):  # a GPU that is no longer there: the first call that needs it says so
                action()
        super().run()
