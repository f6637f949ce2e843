"""Training within limited memory (``-memory``): the plan made, carried out, and made again with measured times."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.layers.base.context import ParamMemory
from scaffe.layers.kernels.backend import Backend, is_device
from scaffe.log import info
from scaffe.memory.amount import amount, n_bytes, shown
from scaffe.memory.backing.disk import Spill
from scaffe.memory.backing.file_backed import BackedMemory, MadeOnHost, on_disk
from scaffe.memory.backing.spill_file import SpillFile
from scaffe.memory.plan.placements import PLACEMENTS
from scaffe.memory.problem.costs import estimated_seconds
from scaffe.memory.problem.iteration import Iteration
from scaffe.memory.problem.saved_activations import keep_little
from scaffe.memory.problem.tensors import Planned, joined_steps, parts_of, planned_arrays
from scaffe.memory.problem.unmovable import fixed_bytes
from scaffe.memory.run.forecast import least_to_train
from scaffe.memory.run.limited_net import Limit, LimitedNet
from scaffe.memory.run.limited_passes import Trim, refuse_half_types, return_freed_memory
from scaffe.memory.run.tested_nets import InTurn
from scaffe.nets.activation_memory import pass_diffs
from scaffe.nets.fusion import join_backward
from scaffe.nets.net import Net
from scaffe.training.ranks import together
from scaffe.training.solver import Observer, Solver
from scaffe.training.state_below import InFile
from scaffe.training.streamed_state import StreamedState

MEASURED_AFTER = 3  # iterations: the plan is then made again with the times they took


def add_memory_flags(flags: Flags) -> None:
    """Add -memory, -spill and -placement to a command's flags."""
    flags.flag("memory", "", "the most that a rank trains in: 2GB, 40%", kind=amount, metavar="AMOUNT")
    flags.flag("spill", ".", "where the rest goes: a folder on a local disk", metavar="FOLDER")
    flags.flag("placement", "auto", "what leaves: auto, geeps, move or recompute",
               choices=tuple(PLACEMENTS), metavar="NAME")


def check_debug_info(param: Any, options: Namespace) -> None:
    """Refuse ``-memory`` with a solver that shows its values. Called by all ranks, each of which raises UserError."""
    if param.debug_info and vars(options).get("memory", ""):
        raise UserError("-memory does not go with debug_info, which reads blobs that are not in memory",
                        everywhere=True)


def param_memory(options: Namespace, kernels: Backend) -> ParamMemory | None:
    """Where the parameters of a net that nobody trains are made, if ``-memory`` is given. Raises UserError: no file."""
    return MadeOnHost() if options.memory and is_device(kernels) else backed_memory(options, kernels, -1)


def backed_memory(options: Namespace, kernels: Backend, rank: int) -> BackedMemory | None:
    """Where a net's parameters are made in host memory, if ``-memory`` is given, by a rank, or by the only one (below
    0). Raises UserError: no file."""
    if not vars(options).get("memory", "") or is_device(kernels):
        return None
    return_freed_memory()
    return BackedMemory(SpillFile(options.spill), rank)


def limit_memory(solver: Solver, options: Namespace, backed: BackedMemory) -> None:
    """Have a solver's net train in limited memory, if ``-memory`` asks for it and the net needs it on some rank. Called
    by all ranks, since they update layers in the same order.

    Args:
        solver: built, not yet restored.
        options: the flags of ``train``.
        backed: where its net's parameters were made.

    Raises:
        UserError: the net needs more than the limit, or the spill file cannot be made.
    """
    ranks = solver.communicator
    join_backward(solver.net.nodes)
    whole, limit = together(ranks, lambda: _wanted(solver, options))
    if not any(ranks.allgather_objects(max(whole, solver.strategy.state.server_bytes) > limit)):
        info(f"Memory: training takes {shown(whole)}, within {shown(limit)}: nothing moves")
        pass_diffs(solver.net)
        backed.keep(solver.net.params.data)
        return
    keep_little(solver.net, limit, lambda: least_to_train(
        solver.net, _taken(solver, planned_arrays(solver.net)), solver.strategy.eager.updates_alone))
    solver.observers.append(together(ranks, lambda: _limited(solver, backed, limit, options)))


def _wanted(solver: Solver, options: Namespace) -> tuple[int, int]:
    """The bytes that training takes without a limit, and the limit."""
    refuse_half_types(solver.net)
    planned = planned_arrays(solver.net)
    whole = _taken(solver, planned) + sum(each.part.n_bytes for each in planned)
    return whole, n_bytes(options.memory, whole)


def _taken(solver: Solver, planned: list[Planned]) -> int:
    """Bytes that stay in memory all the time: what the net has outside the plan, histories, what the strategy keeps,
    and the test nets' blobs."""
    histories = sum(shard.n_bytes for shard in solver.updater.everything)
    kept = histories + solver.strategy.state.kept_bytes
    return fixed_bytes(solver.net, planned) + kept + sum(map(_blobs, solver.test_nets))


def _blobs(net: Net) -> int:
    tops = {id(top): top for node in net.nodes if not node.layer.shares_data for top in node.tops}
    return sum(top.n_elems * top.dtype.itemsize for top in tops.values())


def _limited(solver: Solver, backed: BackedMemory, limit: int, options: Namespace) -> LimitedMemory:
    solver.strategy.state.keep_on_disk(options.spill)
    if (taken := solver.strategy.state.server_bytes) > limit:
        raise UserError(f"-memory {options.memory}: {limit:,} bytes are too few for a rank that is a server alone, "
                        f"which takes {taken:,} (-servers)")
    state, planned = StreamedState(solver, InFile(solver, backed)), planned_arrays(solver.net)
    fixed = _taken(solver, planned) - state.taken_bytes
    iteration = Iteration(parts_of(solver.net, planned, state.held), state.seconds(estimated_seconds(solver.net)),
                          state.n_updates, joined_steps(solver.net))
    tier = LimitedNet(solver.net, planned, state.held, iteration,
                      Limit(options.memory, limit, fixed, options.placement), Spill(backed), solver.timers)
    state.attach(tier.executor)
    return_freed_memory(limit)
    solver.net.tiers.append(Trim())
    if fixed + state.parameter_bytes > limit:
        _limit_tests(solver, state, tier)
    solver.updater.whole = partial(on_disk, options.spill)
    return LimitedMemory(tier, MEASURED_AFTER)


def _limit_tests(solver: Solver, state: StreamedState, tier: LimitedNet) -> None:
    """Have test nets read parameters in turn, which do not fit in memory together."""
    held, limit = state.parameters(tier.executor), tier.limit
    for test in solver.test_nets:
        test.tiers.append(in_turn := InTurn(test, solver.net, held, solver.net.params.bring, tier.executor.forget))
        needed = limit.fixed + in_turn.most_bytes
        if needed > limit.n_bytes:
            raise UserError(f"-memory {limit.text}: {limit.n_bytes:,} bytes are too few for the solver's test net "
                            f"{test.name!r}: the parameters of a layer, and what does not move, are {needed:,}")


class LimitedMemory(Observer):
    """Has one rank's net train by a plan, and says at the end what it cost.

    Args:
        tier: the net and its plan.
        measured_after: the iterations after which the plan is made again; those in which this rank waits for another
            one that trains alone do not count.
        planned: called once there is a plan, and when there is another one.

    Attributes:
        tier: see there.
    """

    def __init__(self, tier: LimitedNet, measured_after: int, planned: Callable[[], None] = lambda: None) -> None:
        self.tier, self._measured_after, self._planned = tier, measured_after, planned
        self._n_measured = self._n_passes = 0
        planned()

    def begin(self, solver: Solver) -> None:
        """See Observer: say what the plan is."""
        self._n_measured = 0
        limit = self.tier.limit
        info(f"Memory: {shown(limit.n_bytes)}, of which {shown(limit.fixed)} do not move; {self.tier.text()}")

    def before_iteration(self, solver: Solver) -> None:
        """See Observer: record moves if somebody wants that."""
        self._n_passes = self.tier.executor.n_passes
        self.tier.mover.record = solver.timers.record

    def after_iteration(self, solver: Solver) -> None:
        """See Observer: make the plan again once its steps have been measured."""
        if self.tier.executor.n_passes == self._n_passes:
            return
        self._n_measured += 1
        if self._n_measured == self._measured_after:
            self.tier.plan_again()
            self._planned()
            info(f"Memory: planned again with measured times: {self.tier.text()}")

    def finish(self, solver: Solver) -> None:
        """See Observer: say what was moved."""
        info(f"Memory: {self.tier.spent()}")
