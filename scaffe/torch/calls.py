"""One call of torch.distributed as collectives of a communicator, with the steps that follow them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.distributed import ReduceOp

from scaffe.collectives import CommError, Communicator, Request
from scaffe.torch.tensors import array_of
from scaffe.torch.work import CollectiveWork


class Calls:
    """Collectives that are waited for together.

    Args:
        communicator: runs them.
        is_async: on its helper thread; otherwise here and now, but for tensors on a GPU, whose order streams keep.
    """

    def __init__(self, communicator: Communicator, is_async: bool) -> None:
        self._communicator, self._is_async = communicator, is_async
        self._requests: list[Request] = []
        self._steps: list[Callable[[], object]] = []
        self._devices: set[torch.device] = set()

    def run(self, collective: str, flat: torch.Tensor, *arguments: Any, algorithm: str = "auto") -> None:
        """Runs or starts the communicator's method of that name on `flat`."""
        array, named = array_of(flat), dict[str, Any](algorithm=algorithm)
        if flat.is_cuda:
            self._devices.add(flat.device)
            named["after"] = torch.cuda.current_stream(flat.device).record_event()
        if self._is_async or flat.is_cuda:
            self._requests.append(getattr(self._communicator, f"i{collective}")(array, *arguments, **named))
        else:
            getattr(self._communicator, collective)(array, *arguments, **named)

    def between(self, step: Callable[..., object], *arguments: Any) -> None:
        """Adds a step after the collective that was run last, before the next one."""
        if not self._requests:
            step(*arguments)
            return

        def call(request: Request) -> None:
            with suppress(CommError):  # which `work` raises
                request.wait()
                step(*arguments)

        self._requests[-1].add_done_callback(call)

    def then(self, step: Callable[..., object], *arguments: Any) -> None:
        """Adds a step that follows when all collectives are complete."""
        self._steps.append(partial(step, *arguments))

    def work(self, result: Any) -> CollectiveWork:
        """Makes the work object that waits for all collectives; `result` is its future's value."""
        return CollectiveWork(self._requests, self._steps, result, sorted(self._devices, key=str))


NAMES = {ReduceOp.SUM: "sum", ReduceOp.AVG: "sum", ReduceOp.PRODUCT: "prod", ReduceOp.MIN: "min", ReduceOp.MAX: "max"}


class Reduction(NamedTuple):
    """A reduction: the communicator's op, and what the result is divided by afterwards; 1 for nothing."""

    op: str
    divisor: int

    @classmethod
    def of(cls, theirs: Any, n_ranks: int) -> Reduction:
        """Translates a ReduceOp. Raises CommError where ours has nothing like it."""
        for known, op in NAMES.items():
            if theirs == known:
                return cls(op, n_ranks if known == ReduceOp.AVG else 1)
        raise CommError(f"op must be one of SUM, AVG, PRODUCT, MIN and MAX, not {getattr(theirs, 'op', theirs)}")

    def finish(self, calls: Calls, flat: torch.Tensor) -> None:
        """Adds to `calls` the steps that remain on the sum `flat`."""
        if self.divisor != 1:
            calls.then(flat.div_, self.divisor)
