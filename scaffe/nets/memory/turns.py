"""Nets whose arrays lie in the same memory: one of them at a time has its arrays there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.nets.memory.executor import Executor


def take_turns(executors: Sequence[Executor]) -> None:
    """Have the executor that was last there leave the memory of all before another one uses it.

    Args:
        executors: of one memory, of which none has run yet.
    """
    turns = _Turns()
    for executor in executors:
        executor.enter = turns.taker(executor)


class _Turns:
    def __init__(self) -> None:
        self._last: Executor | None = None

    def taker(self, executor: Executor) -> Callable[[], None]:
        def take() -> None:
            if self._last not in (None, executor):
                self._last.leave()
            self._last = executor

        return take
