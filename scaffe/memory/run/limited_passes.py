"""Passes of a net that is not trained, within limited memory, as ``time``, ``test`` and ``extract_features`` run
them."""

from __future__ import annotations

from collections.abc import Collection

from scaffe.errors import UserError
from scaffe.layers.base.context import ParamMemory
from scaffe.layers.kernels import device
from scaffe.layers.kernels.backend import is_device
from scaffe.mapped_memory import return_freed_memory, trim_heap
from scaffe.memory.backing.disk import DiskStore
from scaffe.memory.backing.file_backed import FileBackedMemory
from scaffe.memory.backing.pinned import pinned_store
from scaffe.memory.backing.spill_file import SpillFile
from scaffe.memory.options import n_bytes
from scaffe.memory.plan.greedy import least_bytes
from scaffe.memory.problem.activations import reduce_saved_activations
from scaffe.memory.problem.costs import Speed, estimated_seconds, unmovable_bytes
from scaffe.memory.problem.device_bytes import unmovable_in_forward_on_device, unmovable_on_device
from scaffe.memory.problem.division import save_less_on_device
from scaffe.memory.problem.iteration import Iteration
from scaffe.memory.problem.layer_groups import bytes_of, long_groups, single_layers
from scaffe.memory.problem.scratch import reserve_scratch
from scaffe.memory.problem.state import device_parameter_tensor, weight_tensor
from scaffe.memory.problem.tensors import ActivationTensor, activation_tensors, iteration_of
from scaffe.memory.run.limited_net import Limit, LimitedNet
from scaffe.memory.run.offloaded_state import pinned_copy
from scaffe.nets.net import Net, Tier


def refuse_half_types(net: Net) -> None:
    """Raise UserError if a net computes in a half type."""
    if net.context.dtype != net.params.dtype:
        raise UserError("-memory goes with -precision fp32 only")


def limit_passes(net: Net, memory: str, placement: str, folder: str) -> LimitedNet | None:
    """Have a net that is not trained run forward and backward within limited memory. Its parameters and gradients stay
    there. Returns the net and its plan; None if everything is within the limit. Raises UserError if it needs more.

    Args:
        memory: the limit, "2GB" or "40%".
        placement: a name of ``PLACEMENTS``.
    """
    if is_device(net.context.kernels):
        return _passes_on_device(net, memory, placement)
    return _passes_on_host(net, memory, placement, folder)


def _passes_on_host(net: Net, memory: str, placement: str, folder: str) -> LimitedNet | None:
    refuse_half_types(net)
    activations = activation_tensors(net)
    whole = unmovable_bytes(net, activations) + sum(each.tensor.n_bytes for each in activations)
    limit = n_bytes(memory, whole)
    if whole <= limit:
        return None
    return_freed_memory()
    net.tiers.append(TrimHeap())
    reduce_saved_activations(
        net, limit, lambda: unmovable_bytes(net, activation_tensors(net)) + least_bytes(_iteration(net)))
    activations = activation_tensors(net)
    limits = Limit(memory, limit, unmovable_bytes(net, activations), placement)
    return LimitedNet(net, activations, [], _iteration(net), limits,
                      DiskStore(FileBackedMemory(SpillFile(folder))))


def _iteration(net: Net) -> Iteration:
    return iteration_of(net, activation_tensors(net), [], estimated_seconds(net))


def _passes_on_device(net: Net, memory: str, placement: str) -> LimitedNet | None:
    activations, scratch = activation_tensors(net), reserve_scratch(net)
    unmovable = unmovable_on_device(net, activations, scratch)
    whole = unmovable + sum(each.tensor.n_bytes for each in activations)
    limit = n_bytes(memory, whole)
    if net.params.waits_on_host:
        net.params.move(net.params.zeros)
    if whole <= limit:
        return None
    save_less_on_device(net)
    activations = activation_tensors(net)
    unmovable = unmovable_on_device(net, activations, scratch)
    iteration = iteration_of(net, activations, [], estimated_seconds(net, Speed(*device.speeds())), is_recorded=True)
    return LimitedNet(net, activations, [], iteration, Limit(memory, limit, unmovable, placement),
                      pinned_store(net, iteration, limit - unmovable, len(activations)))


def limit_forward(net: Net, memory: str, placement: str, made_in: ParamMemory | None,
                  shown: Collection[str] = ()) -> LimitedNet | None:
    """Have a net run forward alone within limited memory. Its large layers' parameters are fetched as they are needed.
    Returns the net and its plan; None if everything is within the limit. Raises UserError if it computes in a half
    type, or needs more.

    Args:
        memory, placement: as for ``limit_passes``; without a limit nothing happens.
        made_in: where its parameters were made; None if on a device.
        shown: names of blobs that somebody reads after a pass, in addition to the outputs; names of no blob are
            ignored.
    """
    if not memory:
        return None
    activations = activation_tensors(net, False, [name for name in shown if name in net.blobs])
    if isinstance(made_in, FileBackedMemory):
        return _forward_on_host(net, memory, placement, activations, made_in)
    return _forward_on_device(net, memory, placement, activations)


def _forward_on_host(net: Net, memory: str, placement: str, activations: list[ActivationTensor],
                     backed: FileBackedMemory) -> LimitedNet | None:
    refuse_half_types(net)
    unmovable = unmovable_bytes(net, activations, False)
    whole = unmovable + sum(each.tensor.n_bytes for each in activations)
    limit = n_bytes(memory, whole)
    state = [weight_tensor(net, group) for group in long_groups(net, single_layers(net))] if whole > limit else []
    backed.keep(net.params.data, [each.memory for each in state])
    if whole <= limit:
        return None
    iteration = iteration_of(net, activations, state, estimated_seconds(net, backward=False))
    unmovable -= sum(each.memory.nbytes for each in state)
    net.tiers.append(TrimHeap())
    return LimitedNet(net, activations, state, iteration, Limit(memory, limit, unmovable, placement), DiskStore(backed))


def _forward_on_device(net: Net, memory: str, placement: str, activations: list[ActivationTensor]) -> LimitedNet | None:
    unmovable = unmovable_in_forward_on_device(net, activations, reserve_scratch(net, backward=False))
    whole = unmovable + sum(each.tensor.n_bytes for each in activations)
    limit, params = n_bytes(memory, whole), net.params
    params.bind_diff(None)  # there is no backward
    if whole <= limit:
        if params.waits_on_host:
            params.move_one("data", params.zeros)
        return None
    groups = long_groups(net, single_layers(net))
    state = [device_parameter_tensor(net, group, pinned_copy(net, group), backward=False) for group in groups]
    params.divide("data", [group.place for group in groups], lambda n_elems: params.zeros(n_elems, params.dtype))
    unmovable -= sum(bytes_of(net, group) for group in groups)
    iteration = iteration_of(net, activations, state, estimated_seconds(net, Speed(*device.speeds()), backward=False))
    return LimitedNet(net, activations, state, iteration, Limit(memory, limit, unmovable, placement),
                      pinned_store(net, iteration, limit - unmovable, len(activations)))


EACH_STEP, EACH_PASS = 2, 10  # passes: kernels are loaded in the first, and a plan is made again behind the third


class TrimHeap(Tier):
    """A tier that has the C library give back memory that lies free between what is in use: after each step of a net's
    first passes, in which kernels are loaded, and before each of some more. 50 MB of CaffeNet's 923 within a limit of
    597 lay so. No effect if the library has no such call."""

    def __init__(self) -> None:
        self._n_passes = 0

    def before(self, step: int) -> None:
        if step == 0:
            self._n_passes += 1
            if self._n_passes <= EACH_PASS:
                trim_heap()

    def after(self, step: int) -> None:
        if self._n_passes <= EACH_STEP:
            trim_heap()
