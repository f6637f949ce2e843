"""Where a memory plan finds parameters, gradients and histories that may leave: on the host, and on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from scaffe.mapped_memory import rounded
from scaffe.memory.backing.file_backed import BackedMemory
from scaffe.memory.problem.chunks import Run, bytes_of
from scaffe.memory.problem.state import (
    blocks_held,
    fetched,
    gradient_places,
    gradients_apart,
    gradients_held,
    history_held,
    history_part,
    parameters_apart,
    parameters_held,
    renewed,
)
from scaffe.memory.problem.tensors import Held
from scaffe.memory.run.device import on_host
from scaffe.memory.run.tested_nets import Apart
from scaffe.training.loss_scale import needs_scale
from scaffe.training.shard_updater import ShardUpdater
from scaffe.training.solver import Solver
from scaffe.training.strategies.buckets import Bucket
from scaffe.training.strategies.eager_update import EagerUpdate


class StateBelow(Protocol):
    """Gives what may leave places that its memory knows.

    Attributes:
        spreads_rows: whether blocks of a layer's rows come and leave by themselves: see ``come_by_rows``.
    """

    spreads_rows: ClassVar[bool]

    def may_update_in_backward(self) -> bool:
        """Whether runs may be updated as soon as their gradients are there."""

    def parameters(self, runs: Sequence[Bucket]) -> tuple[list[Held], int]:
        """Parameters and gradients of runs, as far as they may leave, and the bytes that they took. The others stay.
        Called by all ranks, once."""

    def histories(self, shard: ShardUpdater, run: Run, step: int) -> list[Held]:
        """Those of a run's shard, which is updated in a step."""


class InFile:
    """See StateBelow: in host memory over a file, where the net's parameters were made.

    Args:
        solver: built, not yet restored.
        backed: that file.
    """

    spreads_rows: ClassVar[bool] = True

    def __init__(self, solver: Solver, backed: BackedMemory) -> None:
        self._net, self._backed, self._eager = solver.net, backed, solver.strategy.eager

    def may_update_in_backward(self) -> bool:
        """See StateBelow."""
        return True

    def parameters(self, runs: Sequence[Bucket]) -> tuple[list[Held], int]:
        """See StateBelow: whole pages."""
        held = [*(each for run in runs for each in self._held(run)), *blocks_held(self._net, runs)]
        self._backed.keep(self._net.params.data, [each.memory for each in held if each.part.forward])
        return held, sum(each.memory.nbytes + each.spared for each in held)

    def _held(self, run: Bucket) -> list[Held]:
        renew = self._eager.refresher(run)
        gradients = [] if run.first_layer in self._net.steps.behind else [gradients_held(self._net, run)]
        return [*(_served(each, self._eager, renew) for each in parameters_held(self._net, run)), *gradients]

    def histories(self, shard: ShardUpdater, run: Run, step: int) -> list[Held]:
        """See StateBelow: moved into whole pages."""
        pages = list[np.ndarray]()

        def in_kept_pages(n_elems: int, dtype: np.dtype) -> np.ndarray:
            pages.append(self._backed.pages(rounded(n_elems * dtype.itemsize)))
            return pages[-1].view(dtype)[:n_elems]

        shard.move(in_kept_pages)
        return [history_held(self._net, run, memory, step) for memory in pages]


class OnDevice:
    """See StateBelow: on a device, with page-locked places on the host.

    Args:
        solver: as above.

    Attributes:
        apart: parameters that may leave, for test nets, which read them too.
    """

    spreads_rows: ClassVar[bool] = False

    def __init__(self, solver: Solver) -> None:
        self._solver, self._net = solver, solver.net
        self.apart: list[Apart] = []

    def may_update_in_backward(self) -> bool:
        """See StateBelow: not where an update is left out if any gradient overflows."""
        return not needs_scale(self._net.context.dtype)

    def parameters(self, runs: Sequence[Bucket]) -> tuple[list[Held], int]:
        """See StateBelow: they get memory of their own."""
        net, params, held, taken = self._net, self._net.params, list[Held](), 0
        strategy = self._solver.strategy
        allocate = partial(strategy.replica.communicator.alloc, memory="device")
        places = {"data": [run.place for run in runs], "diff": gradient_places(net, runs)}
        waited = params.waits_on_host
        self.apart = [Apart(run, on_host(net, run)) for run in runs]
        both = [_served(parameters_apart(net, each.run, each.place), strategy.eager, None) for each in self.apart]
        for name, arrays in (("diff", gradients_apart(net, runs)), ("data", both)):
            if arrays:
                params.divide(name, places[name], partial(allocate, dtype=params.dtype))
                held += arrays
                taken += sum(bytes_of(net, run) for run in runs)
            elif waited:
                params.move_one(name, allocate)
        if held:
            allocate(0)  # which frees what the ranks have mapped of the memory that was
        return held, taken

    def histories(self, shard: ShardUpdater, run: Run, step: int) -> list[Held]:
        """See StateBelow: bound to where they are."""
        part = history_part(self._net, run, rounded(shard.n_bytes // shard.n_histories), step)
        return [Held(np.empty(0, np.uint8), part, [], partial(shard.bind, i)) for i in range(shard.n_histories)]


def _served(parameters: Held, eager: EagerUpdate, renew: Callable[[], None] | None) -> Held:
    """Parameters as a strategy has them written, where a server has them too; ``renew``: see ``renewed``."""
    if eager.refreshes_parameters:
        return renewed(parameters, renew)
    return fetched(parameters) if eager.may_refresh_parameters else parameters
