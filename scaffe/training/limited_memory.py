"""Training within limited memory (``-memory``), on the host and on a device.

This stays in training, since it reads a solver's flags, strategy and test nets, and observes its iterations.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial

from scaffe.errors import UserError
from scaffe.layers.kernels import device
from scaffe.layers.kernels.backend import Backend
from scaffe.log import info
from scaffe.mapped_memory import return_freed_memory
from scaffe.memory.backing.disk import DiskStore
from scaffe.memory.backing.file_backed import FileBackedMemory, file_backed_zeros
from scaffe.memory.backing.pinned import PinnedStore, pinned_store
from scaffe.memory.options import n_bytes, shown
from scaffe.memory.problem import device_bytes
from scaffe.memory.problem.activations import (
    note_passed_diffs,
    pass_diffs,
    place_activations,
    reduce_saved_activations,
)
from scaffe.memory.problem.costs import Speed, estimated_seconds, unmovable_bytes
from scaffe.memory.problem.division import save_less_on_device
from scaffe.memory.problem.scratch import held_bytes, reserve_scratch, waiting_bytes
from scaffe.memory.problem.tensors import ActivationTensor, activation_tensors, iteration_of
from scaffe.memory.run.chunked_updates import ChunkedState
from scaffe.memory.run.executor import share_arena
from scaffe.memory.run.limited_net import Limit, LimitedNet, cut_recordings
from scaffe.memory.run.limited_passes import TrimHeap, refuse_half_types
from scaffe.memory.run.offloaded_state import DeviceState, HostState, PinnedParameters
from scaffe.memory.run.report import least_to_train
from scaffe.memory.run.testing_nets import ArenaSharingNet, SequentialFetch, place_own_parameters
from scaffe.nets.fusion import join_backward
from scaffe.nets.net import Net
from scaffe.training.chunked_updates import attach, chunked_state
from scaffe.training.loss_scale import needs_scale
from scaffe.training.ranks import together, with_first_ranks_kernels
from scaffe.training.solver import Observer, Solver
from scaffe.training.strategies.transfers import Bucket

MEASURED_AFTER_ON_HOST = 3  # iterations: the plan is then made again with the times they took


def limit_memory(solver: Solver, options: Namespace, backed: FileBackedMemory) -> None:
    """Have a solver's net train in limited host memory, if ``-memory`` asks for it and the net needs it on some rank.
    Called by all ranks, since they update layers in the same order. Raises UserError if the net needs more than the
    limit, or the spill file cannot be made."""
    ranks = solver.communicator
    join_backward(solver.net.nodes)
    whole, limit = together(ranks, lambda: _wanted(solver, options))
    if not any(ranks.allgather_objects(max(whole, solver.strategy.state.server_bytes) > limit)):
        info(f"Memory: training takes {shown(whole)}, within {shown(limit)}: nothing moves")
        pass_diffs(solver.net)
        backed.keep(solver.net.params.data)
        return
    reduce_saved_activations(solver.net, limit, lambda: least_to_train(
        solver.net, _taken_on_host(solver, activation_tensors(solver.net)), solver.strategy.eager.updates_alone))
    solver.observers.append(together(ranks, lambda: _limited_on_host(solver, backed, limit, options)))


def _wanted(solver: Solver, options: Namespace) -> tuple[int, int]:
    refuse_half_types(solver.net)
    activations = activation_tensors(solver.net)
    whole = _taken_on_host(solver, activations) + sum(each.tensor.n_bytes for each in activations)
    return whole, n_bytes(options.memory, whole)


def _taken_on_host(solver: Solver, activations: list[ActivationTensor]) -> int:
    """Bytes that stay in memory all the time: what the net has outside the plan, histories, what the strategy keeps,
    and the test nets' blobs."""
    histories = sum(shard.n_bytes for shard in solver.updater.everything)
    kept = histories + solver.strategy.state.kept_bytes
    return unmovable_bytes(solver.net, activations) + kept + sum(map(_blobs, solver.test_nets))


def _blobs(net: Net) -> int:
    tops = {id(top): top for node in net.nodes if not node.layer.shares_data for top in node.tops}
    return sum(top.n_elems * top.dtype.itemsize for top in tops.values())


def _limited_on_host(solver: Solver, backed: FileBackedMemory, limit: int, options: Namespace) -> LimitedMemory:
    solver.strategy.state.keep_on_disk(options.spill)
    if (taken := solver.strategy.state.server_bytes) > limit:
        raise UserError(f"-memory {options.memory}: {limit:,} bytes are too few for a rank that is a server alone, "
                        f"which takes {taken:,} (-servers)")
    state, activations = chunked_state(solver, HostState(solver.net, backed)), activation_tensors(solver.net)
    unmovable = _taken_on_host(solver, activations) - state.taken_bytes
    seconds = state.seconds(estimated_seconds(solver.net))
    iteration = iteration_of(solver.net, activations, state.tensors, seconds, state.n_updates)
    tier = LimitedNet(solver.net, activations, state.tensors, iteration,
                      Limit(options.memory, limit, unmovable, options.placement), DiskStore(backed), solver.timers)
    attach(solver, state, tier.executor)
    return_freed_memory(limit)
    solver.net.tiers.append(TrimHeap())
    if unmovable + state.parameter_bytes > limit:
        _limit_tests_on_host(solver, state, tier)
    solver.updater.whole = partial(file_backed_zeros, options.spill)
    return LimitedMemory(tier, MEASURED_AFTER_ON_HOST)


def _limit_tests_on_host(solver: Solver, state: ChunkedState[Bucket], tier: LimitedNet) -> None:
    """Have test nets fetch parameters sequentially, if they do not all fit in memory."""
    parameters, limit, executor = state.parameters(tier.executor), tier.limit, tier.executor
    for test in solver.test_nets:
        sequential = SequentialFetch(test, solver.net, parameters, solver.net.params.fetch_all, executor.release)
        test.tiers.append(sequential)
        _check_test(limit, test, limit.unmovable + sequential.most_bytes)


def _check_test(limit: Limit, test: Net, needed: int) -> None:
    if needed > limit.n_bytes:
        raise UserError(f"-memory {limit.text}: {limit.n_bytes:,} bytes are too few for the solver's test net "
                        f"{test.name!r}: the parameters of a layer, and what does not move, are {needed:,}")


class LimitedMemory(Observer):
    """Has one rank's net train by a plan, and logs at the end what it cost.

    Args:
        measured_after: the iterations after which the plan is made again. Iterations in which this rank waits for
            another one that trains alone do not count.
        on_plan: called when there is a plan, and when there is another one.
    """

    def __init__(self, tier: LimitedNet, measured_after: int, on_plan: Callable[[], None] = lambda: None) -> None:
        self.tier, self._measured_after, self._on_plan = tier, measured_after, on_plan
        self._n_measured = self._n_passes = 0
        on_plan()

    def begin(self, solver: Solver) -> None:
        self._n_measured = 0
        limit = self.tier.limit
        info(f"Memory: {shown(limit.n_bytes)}, of which {shown(limit.unmovable)} do not move; {self.tier.text()}")

    def before_iteration(self, solver: Solver) -> None:
        self._n_passes = self.tier.executor.n_passes
        self.tier.mover.record = solver.timers.record

    def after_iteration(self, solver: Solver) -> None:
        if self.tier.executor.n_passes == self._n_passes:
            return
        self._n_measured += 1
        if self._n_measured == self._measured_after:
            self.tier.replan()
            self._on_plan()
            info(f"Memory: planned again with measured times: {self.tier.text()}")

    def finish(self, solver: Solver) -> None:
        info(f"Memory: {self.tier.spent()}")


MEASURED_AFTER_ON_DEVICE = 4  # iterations: the third records passes, and the fourth only launches what was recorded
SPARE = 0.05  # of what is free, for what nobody foresees: cuDNN's own, fragments


def place_on_device(solver: Solver, options: Namespace, kernels: Backend) -> None:
    """Give a solver's net its memory on the device, and move parameters there that wait on the host. Called by all
    ranks.

    Activations lie in one arena. If ``-memory`` asks for less than training takes, or, without it, less is free on the
    device, they follow a plan that offloads some to the host. Raises UserError if the net needs more than the limit."""
    ranks, text = solver.communicator, vars(options).get("memory", "")
    if text and options.spill != ".":
        info("Memory: -spill does not apply on a GPU: the rest goes to the host's memory")
    cards = ranks.allgather_objects((os.uname().nodename, device.bus_id(device.current())))
    n_sharing = cards.count(cards[ranks.rank])
    needs = tuple(tuple(top.shape) for top in solver.net.nodes[0].tops)  # ranks may have parts of different lengths
    choose = partial(with_first_ranks_kernels, ranks, kernels, needs=needs)
    scratch = choose(lambda: _reserve_scratch(solver))
    whole = scratch + waiting_bytes(solver.net) + _taken_on_device(solver) + device_bytes.training_bytes(solver.net, 0)
    limit = n_bytes(text, whole) if text else _free_bytes(solver, n_sharing)
    ranks.barrier()  # all have looked what is free
    is_limited = any(ranks.allgather_objects(whole > limit))
    if not is_limited:
        if solver.net.params.waits_on_host:
            solver.net.params.move(partial(solver.strategy.replica.communicator.alloc, memory="device"))
        place_activations(solver.net, True, choose)
        if text:
            info(f"Memory: training takes {shown(whole)}, within {shown(limit)}: nothing moves")
    elif not text:  # each rank follows a plan if one does: they update layers in the same order
        text = f"{limit}B"
        info(f"Memory: training takes {shown(whole)} on the device, {shown(limit)} are free: what does not fit moves "
             "to the host and back, or is computed again")
    limited = together(ranks, lambda: _limited_on_device(solver, options, text, limit) if is_limited else None)
    if limited is not None:
        solver.observers.append(limited)
    for test in solver.test_nets:
        place_own_parameters(test, solver.net)


def _reserve_scratch(solver: Solver) -> int:
    """Build the plans of all nets' passes, and take the arena that they work in. Returns its bytes."""
    for test in solver.test_nets:
        reserve_scratch(test, backward=False)
    return reserve_scratch(solver.net)


def _taken_on_device(solver: Solver) -> int:
    """Bytes of everything but the training net: updates, what the strategy keeps, the test nets."""
    updates = sum(shard.n_bytes for shard in solver.updater.everything) + device_bytes.update_bytes(solver.net)
    return updates + solver.strategy.state.kept_bytes + sum(map(device_bytes.bytes_of_test_net, solver.test_nets))


def _free_bytes(solver: Solver, n_sharing: int) -> int:
    """Bytes that training may take: this rank's part of what is free, and what it has already."""
    params = solver.net.params
    copies = 0 if params.copies is None else params.copies.nbytes
    buffers = 0 if params.waits_on_host else params.data.nbytes + params.diff.nbytes
    has = buffers + copies + held_bytes() + sum(map(device_bytes.bytes_of_test_blobs, solver.test_nets))
    return int(device.free_bytes() * (1 - SPARE)) // n_sharing + has


def _limited_on_device(solver: Solver, options: Namespace, text: str, limit: int) -> LimitedMemory:
    net = solver.net
    on_device = DeviceState(net, partial(solver.strategy.replica.communicator.alloc, memory="device"))
    save_less_on_device(net)
    note_passed_diffs(net, in_splits=True)
    may_be_eager = not needs_scale(net.context.dtype)  # else an update is left out if any gradient overflows
    state, activations = chunked_state(solver, on_device, may_be_eager, recomputes=False), activation_tensors(net)
    unmovable = device_bytes.unmovable_on_device(net, activations, held_bytes()) + _taken_on_device(solver)
    speed = Speed(*device.speeds())
    seconds = state.seconds(estimated_seconds(net, speed), speed.n_bytes)
    iteration = iteration_of(net, activations, state.tensors, seconds, state.n_updates, is_recorded=True)
    unmovable -= state.taken_bytes
    limits = Limit(text, limit, unmovable, vars(options).get("placement", "auto"))
    store = pinned_store(net, iteration, limit - unmovable, len(activations), solver.communicator.n_ranks == 1)
    tier = LimitedNet(net, activations, state.tensors, iteration, limits, store, solver.timers)
    attach(solver, state, tier.executor)
    _limit_tests_on_device(solver, on_device.pinned, store, tier)
    return LimitedMemory(tier, MEASURED_AFTER_ON_DEVICE, lambda: cut_recordings(
        net, tier.plan, tier.executor.updates.keys(), solver.strategy.passes))


def _limit_tests_on_device(solver: Solver, pinned: Sequence[PinnedParameters], store: PinnedStore,
                           tier: LimitedNet) -> None:
    """Have test nets fetch parameters that may be offloaded into the memory of the training net's tensors."""
    found, limit = list[LimitedNet](), tier.limit
    for test in solver.test_nets if pinned else ():
        sharing = ArenaSharingNet(test, solver.net, pinned)
        _check_test(limit, test, limit.unmovable + sharing.least_bytes())
        found.append(sharing.limit(limit.text, store))
        cut_recordings(test, found[-1].plan, (), solver.test_passes[id(test)])
    share_arena([each.executor for each in (tier, *found)])
