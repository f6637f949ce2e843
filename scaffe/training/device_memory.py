"""Where a net's activations lie on a device: in one arena, or, where memory is limited, partly on the host at times."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from functools import partial

from scaffe.errors import UserError
from scaffe.layers.kernels import device
from scaffe.log import info
from scaffe.memory.amount import n_bytes, shown
from scaffe.memory.backing.pinned import Pinned
from scaffe.memory.problem.costs import Speed, estimated_seconds
from scaffe.memory.problem.iteration import Iteration
from scaffe.memory.problem.saved_activations import keep_signs
from scaffe.memory.problem.tensors import joined_steps, parts_of, planned_arrays
from scaffe.memory.problem.unmovable import fixed_on_device, scratch_bytes, update_bytes, whole_on_device
from scaffe.memory.run.device import cut_recordings, pinned_below, place_own_parameters
from scaffe.memory.run.executor import take_turns
from scaffe.memory.run.limited_net import Limit, LimitedNet
from scaffe.memory.run.tested_nets import Apart, TestedNet
from scaffe.nets.activation_memory import place_activations, tested_blobs, testing_bytes
from scaffe.training.limited_memory import LimitedMemory
from scaffe.training.ranks import together
from scaffe.training.solver import Solver
from scaffe.training.state_below import OnDevice
from scaffe.training.streamed_state import StreamedState

MEASURED_AFTER = 2  # iterations: passes are recorded from the third on
SPARE = 0.05  # of what is free, for what nobody foresees: cuDNN's own, fragments


def place_on_device(solver: Solver, options: Namespace) -> None:
    """Give a solver's net its memory, parameters that wait on the host too. Called by all ranks.

    Activations lie in one arena. Where ``-memory`` asks for less than training takes, or, without it, less is free on
    the device, they follow a plan that moves some to the host and back.

    Args:
        solver: built, not yet restored; its net after ``fuse_layers``.
        options: the flags of ``train``.

    Raises:
        UserError: the net needs more than the limit.
    """
    ranks, text = solver.communicator, vars(options).get("memory", "")
    if text and options.spill != ".":
        info("Memory: -spill does not apply: below a device's memory lies this machine's")
    cards = ranks.allgather_objects((os.uname().nodename, device.bus_id(device.current())))
    n_sharing = cards.count(cards[ranks.rank])
    whole = _taken(solver) + whole_on_device(solver.net)
    limit = n_bytes(text, whole) if text else _free_bytes(solver, n_sharing)
    ranks.barrier()  # all have looked what is free
    is_limited = any(ranks.allgather_objects(whole > limit))
    if not is_limited:
        if solver.net.params.waits_on_host:
            solver.net.params.move(partial(solver.strategy.replica.communicator.alloc, memory="device"))
        place_activations(solver.net, True)
        if text:
            info(f"Memory: training takes {shown(whole)}, within {shown(limit)}: nothing moves")
    elif not text:  # each rank follows a plan if one does: they update layers in the same order
        text = f"{limit}B"
        info(f"Memory: training takes {shown(whole)} on the device, {shown(limit)} are free: what does not fit moves "
             "to the host and back, or is computed again")
    limited = together(ranks, lambda: _limited(solver, options, text, limit) if is_limited else None)
    if limited is not None:
        solver.observers.append(limited)
    for test in solver.test_nets:
        place_own_parameters(test, solver.net)


def _taken(solver: Solver) -> int:
    """Bytes beside the training net's own: what updates have, what the strategy keeps, the test nets."""
    updates = sum(shard.n_bytes for shard in solver.updater.everything) + update_bytes(solver.net)
    return updates + solver.strategy.state.kept_bytes + sum(map(testing_bytes, solver.test_nets))


def _free_bytes(solver: Solver, n_sharing: int) -> int:
    """What training may take: this rank's part of what is free, and what it has already."""
    params = solver.net.params
    copies = 0 if params.copies is None else params.copies.nbytes
    buffers = 0 if params.waits_on_host else params.data.nbytes + params.diff.nbytes
    has = buffers + copies + scratch_bytes() + sum(map(tested_blobs, solver.test_nets))
    return int(device.free_bytes() * (1 - SPARE)) // n_sharing + has


def _limited(solver: Solver, options: Namespace, text: str, limit: int) -> LimitedMemory:
    net, on_device = solver.net, OnDevice(solver)
    keep_signs(net)
    state, planned = StreamedState(solver, on_device), planned_arrays(net)
    fixed = fixed_on_device(net, planned) + _taken(solver) - state.taken_bytes
    speed = Speed(*device.speeds())
    seconds = state.seconds(estimated_seconds(net, speed), speed.n_bytes)
    iteration = Iteration(parts_of(net, planned, state.held), seconds, state.n_updates, joined_steps(net))
    placement = vars(options).get("placement", "auto")
    below = pinned_below(net, iteration, limit - fixed)
    tier = LimitedNet(net, planned, state.held, iteration, Limit(text, limit, fixed, placement), below, solver.timers)
    state.attach(tier.executor)
    _limit_tests(solver, on_device.apart, text, fixed, below, tier)
    return LimitedMemory(tier, MEASURED_AFTER, lambda: cut_recordings(
        net, tier.plan, tier.executor.updates.keys(), solver.strategy.passes))


def _limit_tests(solver: Solver, apart: Sequence[Apart], text: str, fixed: int, below: Pinned,
                 tier: LimitedNet) -> None:
    """Have test nets read parameters that may leave into the memory of a training net's arrays."""
    found = []
    for test in solver.test_nets if apart else ():
        tested = TestedNet(test, solver.net, apart)
        least = fixed + tested.least_bytes(below)
        if tier.limit.n_bytes < least:
            raise UserError(f"-memory {text}: {tier.limit.n_bytes:,} bytes are too few for the solver's test net "
                            f"{test.name!r}: the parameters of a layer, and what does not move, are {least:,}")
        found.append(tested.limit(text, below))
        cut_recordings(test, found[-1].plan, (), solver.test_passes[id(test)])
    take_turns([each.executor for each in (tier, *found)])
