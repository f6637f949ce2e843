"""Training within limited host memory (``-memory``): the plan made, carried out, and made again with measured times."""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress

from scaffe.errors import ExpectedError, UserError
from scaffe.flags import Flags
from scaffe.layers.kernels.backend import is_device
from scaffe.log import info
from scaffe.nets.activation_memory import pass_diffs
from scaffe.nets.fusion import keep_bottoms
from scaffe.nets.memory.amount import amount, n_bytes, shown
from scaffe.nets.memory.costs import estimated_seconds
from scaffe.nets.memory.disk_speed import disk_speed
from scaffe.nets.memory.executor import Executor
from scaffe.nets.memory.fitting import fitted
from scaffe.nets.memory.fixed import fixed_bytes
from scaffe.nets.memory.iteration import Bandwidth, Iteration
from scaffe.nets.memory.layout import Layout
from scaffe.nets.memory.mover import Mover
from scaffe.nets.memory.needs import least_bytes
from scaffe.nets.memory.parts import Planned, joined_steps, parts_of, planned_arrays
from scaffe.nets.memory.placements import PLACEMENTS
from scaffe.nets.memory.plan import Choice, Do, MemoryTooSmallError, Plan
from scaffe.nets.memory.predict import predict
from scaffe.nets.memory.spill_file import SpillFile
from scaffe.nets.net import Net
from scaffe.training.solver import Observer, Solver
from scaffe.training.strategies import Strategy, strategies
from scaffe.training.streamed_state import StreamedState
from scaffe.training.timers import MOVES

MEASURED_AFTER = 3  # iterations: the plan is then made again with the times they took
NO_DISK = Bandwidth(1.0, 1.0)  # where nothing moves


def add_flags(flags: Flags) -> None:
    """Add -memory, -spill and -placement to a command's flags."""
    flags.flag("memory", "", "the most that a rank trains in: 2GB, 40%", kind=amount, metavar="AMOUNT")
    flags.flag("spill", ".", "where the rest goes: a folder on a local disk", metavar="FOLDER")
    flags.flag("placement", "auto", "what leaves: auto, geeps, move or recompute",
               choices=tuple(PLACEMENTS), metavar="NAME")


def check_memory_flags(options: Namespace, strategy: type[Strategy]) -> None:
    """Refuse ``-memory`` with a strategy that keeps parameters elsewhere. Called by all ranks, each of which raises
    UserError."""
    if options.memory and not strategy.limits_memory:
        able = ", ".join(name for name in strategies.names() if strategies.get(name).limits_memory)
        raise UserError(f"-memory is for {able}; {options.strategy} keeps parameters in tables or vectors of its own",
                        everywhere=True)


def limit_memory(solver: Solver, options: Namespace) -> None:
    """Have a solver's net train in limited memory, if ``-memory`` asks for it and the net needs it. Not collective.

    Raises:
        UserError: the net computes on a device, shows its values (debug_info), or needs more than the limit; or the
            spill file cannot be made.
    """
    if is_device(solver.net.context.kernels):
        raise UserError("-memory is for nets that compute in host memory; this one computes on a GPU")
    if solver.param.debug_info:
        raise UserError("-memory does not go with debug_info, which reads blobs that are not in memory")
    if solver.net.context.dtype != solver.net.params.dtype:
        raise UserError("-memory goes with -precision fp32 only")
    planned = planned_arrays(solver.net)
    whole = _taken(solver, planned) + sum(each.part.n_bytes for each in planned)
    limit = n_bytes(options.memory, whole)
    if whole <= limit:
        info(f"Memory: training takes {shown(whole)}, within {shown(limit)}: nothing moves")
        pass_diffs(solver.net)
        return
    keep_bottoms(solver.net)
    solver.observers.append(LimitedMemory(solver, StreamedState(solver), limit, options))


def _taken(solver: Solver, planned: list[Planned]) -> int:
    """Bytes that stay in memory all the time: what the net has outside the plan, histories, the test nets' blobs."""
    histories = sum(shard.n_bytes for shard in solver.updater.everything)
    return fixed_bytes(solver.net, planned) + histories + sum(map(_blobs, solver.test_nets))


def _blobs(net: Net) -> int:
    tops = {id(top): top for node in net.nodes if not node.layer.shares_data for top in node.tops}
    return sum(top.n_elems * top.dtype.itemsize for top in tops.values())


class LimitedMemory(Observer):
    """Makes the plan of one rank, has the net follow it, and says at the end what it cost.

    Args:
        solver: this rank's.
        state: what of its parameters, gradients and histories may leave.
        limit: bytes for all that training takes.
        options: the flags of ``train``.

    Raises:
        UserError: the limit is too low, or the spill file cannot be made.
    """

    def __init__(self, solver: Solver, state: StreamedState, limit: int, options: Namespace) -> None:
        planned = planned_arrays(solver.net)
        self._placement, self._limit, self._n_held = options.placement, limit, len(state.held)
        self._fixed = _taken(solver, planned) - state.taken_bytes
        self._iteration = Iteration(parts_of(solver.net, planned, state.held),
                                    state.seconds(estimated_seconds(solver.net)), state.n_updates,
                                    joined_steps(solver.net))
        self._refuse_tests(solver, state, options)
        least = self._fixed + least_bytes(self._iteration)
        if limit < least:
            raise UserError(f"-memory {options.memory}: {limit:,} bytes are too few; this net trains in {least:,} at "
                            f"least, of which {self._fixed:,} cannot move")
        self._file = SpillFile(options.spill)
        self._bandwidth = disk_speed(self._file) if self._placement != "recompute" else NO_DISK
        try:
            planned_so = self._planned(self._iteration)
        except MemoryTooSmallError as error:
            self._file.close()
            raise UserError(f"-memory {options.memory} with -placement {options.placement}: {error}") from error
        self._executor = Executor(solver.net, planned, state.held, solver.timers)
        state.attach(self._executor)
        self._mover = Mover(self._executor.pages, self._file)
        self._mover.record = lambda label, start, end: solver.timers.record and solver.timers.record(
            MOVES, label, start, end)
        self._follow(*planned_so)
        self._begun = -1

    def _refuse_tests(self, solver: Solver, state: StreamedState, options: Namespace) -> None:
        needed = self._fixed + state.parameter_bytes
        if solver.test_nets and needed > self._limit:
            raise UserError(f"-memory {options.memory}: {self._limit:,} bytes are too few for the solver's test nets, "
                            f"which read all parameters: these and what does not move are {needed:,}")

    def _planned(self, iteration: Iteration) -> tuple[Plan, Layout]:
        return fitted(iteration, PLACEMENTS[self._placement], self._limit - self._fixed, self._bandwidth,
                      len(iteration.parts) - self._n_held)

    def _follow(self, plan: Plan, layout: Layout) -> None:
        self._mover.settle()
        moved = plan.parts_of(Do.SAVE)
        lasting = [number for number in moved if self._iteration.parts[number].lasts]
        self._mover.place([number for number in moved if number not in lasting], lasting)
        self._executor.follow(plan, self._mover, layout)
        self._plan = plan

    def begin(self, solver: Solver) -> None:
        """See Observer: say what the plan is."""
        self._begun = solver.iteration
        info(f"Memory: {shown(self._limit)}, of which {shown(self._fixed)} do not move; {self.text()}")

    def text(self) -> str:
        """The plan in one line."""
        counts = ", ".join(f"{choice.value} {self._plan.choices.count(choice)}" for choice in Choice)
        found = predict(self._iteration, self._plan, self._bandwidth)
        return (f"{counts} arrays; {shown(found.saved)} out and back an iteration, predicted time "
                f"{found.slowdown:.2f}x")

    def after_iteration(self, solver: Solver) -> None:
        """See Observer: make the plan again once its steps have been measured."""
        if solver.iteration != self._begun + MEASURED_AFTER:
            return
        self._iteration = self._iteration.with_seconds(tuple(
            self._executor.seconds.get(step, 0.0) for step in range(len(self._iteration.seconds))))
        if self._mover.saved and self._mover.fetched:
            self._bandwidth = self._mover.bandwidth()
        with suppress(ExpectedError):  # no such plan, or no room on the disk for it: the first one goes on
            self._follow(*self._planned(self._iteration))
        info(f"Memory: planned again with measured times: {self.text()}")

    def finish(self, solver: Solver) -> None:
        """See Observer: say what was moved."""
        info(f"Memory: {shown(self._mover.saved)} written, {shown(self._mover.fetched)} read back, waited "
             f"{self._executor.waited:.3g} s, computed again for {self._executor.again:.3g} s")
