"""Passes of a net that nobody trains within limited memory, as ``time`` and ``test`` run them."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext

from scaffe.errors import UserError
from scaffe.layers.base.context import ParamMemory
from scaffe.layers.kernels import device
from scaffe.layers.kernels.backend import is_device
from scaffe.mapped_memory import return_freed_memory, trim_heap
from scaffe.memory.backing.disk import Spill
from scaffe.memory.backing.file_backed import BackedMemory
from scaffe.memory.backing.pinned import pinned_below
from scaffe.memory.backing.spill_file import SpillFile
from scaffe.memory.options import n_bytes
from scaffe.memory.plan.greedy import least_bytes
from scaffe.memory.problem.activations import keep_little, keep_signs
from scaffe.memory.problem.costs import Speed, estimated_seconds, fixed_bytes
from scaffe.memory.problem.device_bytes import fixed_forward_on_device, fixed_on_device
from scaffe.memory.problem.iteration import Iteration
from scaffe.memory.problem.layer_groups import bytes_of, layers_alone, long
from scaffe.memory.problem.state import parameters_apart, weights_held
from scaffe.memory.problem.tensors import Planned, joined_steps, parts_of, planned_arrays
from scaffe.memory.run.limited_net import Limit, LimitedNet
from scaffe.memory.run.offloaded_state import pinned_copy
from scaffe.nets.net import Net


def refuse_half_types(net: Net) -> None:
    """Raise UserError for a net that computes in a half type."""
    if net.context.dtype != net.params.dtype:
        raise UserError("-memory goes with -precision fp32 only")


def limit_passes(net: Net, memory: str, placement: str, folder: str) -> LimitedNet | None:
    """Have a net that nobody trains run its passes within limited memory; its parameters and gradients stay there.

    Args:
        net: a built net.
        memory: the limit, "2GB" or "40%".
        placement: a name of ``PLACEMENTS``.
        folder: for the spill file.

    Returns:
        the net and its plan; None where everything is within the limit.

    Raises:
        UserError: it needs more.
    """
    if is_device(net.context.kernels):
        return _passes_on_device(net, memory, placement)
    return _passes_on_host(net, memory, placement, folder)


def _passes_on_host(net: Net, memory: str, placement: str, folder: str) -> LimitedNet | None:
    refuse_half_types(net)
    planned = planned_arrays(net)
    whole = fixed_bytes(net, planned) + sum(each.part.n_bytes for each in planned)
    limit = n_bytes(memory, whole)
    if whole <= limit:
        return None
    return_freed_memory()
    net.tiers.append(Trim())
    keep_little(net, limit, lambda: fixed_bytes(net, planned_arrays(net)) + least_bytes(_iteration(net)))
    planned, iteration = planned_arrays(net), _iteration(net)
    return LimitedNet(net, planned, [], iteration, Limit(memory, limit, fixed_bytes(net, planned), placement),
                      Spill(BackedMemory(SpillFile(folder))), _untimed)


def _iteration(net: Net) -> Iteration:
    return Iteration(parts_of(net, planned_arrays(net), []), estimated_seconds(net), joined=joined_steps(net))


def _passes_on_device(net: Net, memory: str, placement: str) -> LimitedNet | None:
    planned = planned_arrays(net)
    fixed = fixed_on_device(net, planned)
    whole = fixed + sum(each.part.n_bytes for each in planned)
    limit = n_bytes(memory, whole)
    if net.params.waits_on_host:
        net.params.move(net.params.zeros)
    if whole <= limit:
        return None
    keep_signs(net)
    planned = planned_arrays(net)
    fixed = fixed_on_device(net, planned)
    iteration = Iteration(parts_of(net, planned, []), estimated_seconds(net, Speed(*device.speeds())),
                          joined=joined_steps(net))
    return LimitedNet(net, planned, [], iteration, Limit(memory, limit, fixed, placement),
                      pinned_below(net, iteration, limit - fixed), _untimed)


def limit_forward(net: Net, memory: str, placement: str, made_in: ParamMemory | None,
                  shown: Collection[str] = ()) -> LimitedNet | None:
    """Have a net run forward alone within limited memory, its large layers' parameters read as they are needed.

    Args:
        net: a built net, with its weights.
        memory, placement: as for ``limit_passes``; without a limit nothing happens.
        made_in: where its parameters were made; None: on a device.
        shown: names of blobs that somebody reads after a pass, besides the outputs; others do not matter.

    Returns:
        the net and its plan; None where everything is within the limit.

    Raises:
        UserError: it computes in a half type, or needs more.
    """
    if not memory:
        return None
    planned = planned_arrays(net, False, [name for name in shown if name in net.blobs])
    if isinstance(made_in, BackedMemory):
        return _forward_on_host(net, memory, placement, planned, made_in)
    return _forward_on_device(net, memory, placement, planned)


def _forward_on_host(net: Net, memory: str, placement: str, planned: list[Planned],
                     backed: BackedMemory) -> LimitedNet | None:
    refuse_half_types(net)
    fixed = fixed_bytes(net, planned, False)
    whole = fixed + sum(each.part.n_bytes for each in planned)
    limit = n_bytes(memory, whole)
    held = [weights_held(net, run) for run in long(net, layers_alone(net))] if whole > limit else []
    backed.keep(net.params.data, [each.memory for each in held])
    if whole <= limit:
        return None
    seconds = estimated_seconds(net, backward=False)
    iteration = Iteration(parts_of(net, planned, held), seconds, joined=joined_steps(net))
    fixed -= sum(each.memory.nbytes for each in held)
    net.tiers.append(Trim())
    return LimitedNet(net, planned, held, iteration, Limit(memory, limit, fixed, placement), Spill(backed),
                      _untimed)


def _forward_on_device(net: Net, memory: str, placement: str, planned: list[Planned]) -> LimitedNet | None:
    fixed = fixed_forward_on_device(net, planned)
    whole = fixed + sum(each.part.n_bytes for each in planned)
    limit, params = n_bytes(memory, whole), net.params
    params.forget_diffs()
    if whole <= limit:
        if params.waits_on_host:
            params.move_one("data", params.zeros)
        return None
    runs = long(net, layers_alone(net))
    held = [parameters_apart(net, run, pinned_copy(net, run), backward=False) for run in runs]
    params.divide("data", [run.place for run in runs], lambda n_elems: params.zeros(n_elems, params.dtype))
    fixed -= sum(bytes_of(net, run) for run in runs)
    seconds = estimated_seconds(net, Speed(*device.speeds()), backward=False)
    iteration = Iteration(parts_of(net, planned, held), seconds, joined=joined_steps(net))
    return LimitedNet(net, planned, held, iteration, Limit(memory, limit, fixed, placement),
                      pinned_below(net, iteration, limit - fixed), _untimed)


def _untimed(name: str, label: str) -> AbstractContextManager[None]:
    return nullcontext()


EACH_STEP, EACH_PASS = 2, 10  # passes: kernels are loaded in the first, and a plan is made again behind the third


class Trim:
    """A tier that has the C library give back what lies free between what is in use: after each step of a net's first
    passes, in which kernels are loaded, and before each of some more. 50 MB of CaffeNet's 923 within a limit of 597 lay
    so. No effect where the library has no such call."""

    def __init__(self) -> None:
        self._n_passes = 0

    def before(self, step: int) -> None:
        """See Tier."""
        if step == 0:
            self._n_passes += 1
            self._trim(EACH_PASS)

    def again(self, step: int) -> None:
        """See Tier."""

    def after(self, step: int) -> None:
        """See Tier."""
        self._trim(EACH_STEP)

    def close(self) -> None:
        """See Tier."""

    def _trim(self, n_passes: int) -> None:
        if self._n_passes <= n_passes:
            trim_heap()
