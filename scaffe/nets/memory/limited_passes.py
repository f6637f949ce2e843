"""Passes of a net that nobody trains within limited memory, as ``time`` runs them."""

from __future__ import annotations

from contextlib import nullcontext

from scaffe.errors import UserError
from scaffe.layers.kernels.backend import is_device
from scaffe.nets.fusion import keep_bottoms
from scaffe.nets.memory.amount import n_bytes
from scaffe.nets.memory.costs import estimated_seconds
from scaffe.nets.memory.fixed import fixed_bytes
from scaffe.nets.memory.iteration import Iteration
from scaffe.nets.memory.limited_net import Limit, LimitedNet
from scaffe.nets.memory.parts import joined_steps, parts_of, planned_arrays
from scaffe.nets.net import Net


def refuse_devices(net: Net) -> None:
    """Raise UserError for a net that computes elsewhere than in host memory, or in a half type."""
    if is_device(net.context.kernels):
        raise UserError("-memory is for nets that compute in host memory; this one computes on a GPU")
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
        UserError: it computes on a device, or needs more.
    """
    refuse_devices(net)
    planned = planned_arrays(net)
    whole = fixed_bytes(net, planned) + sum(each.part.n_bytes for each in planned)
    limit = n_bytes(memory, whole)
    if whole <= limit:
        return None
    keep_bottoms(net)
    planned = planned_arrays(net)
    iteration = Iteration(parts_of(net, planned, []), estimated_seconds(net), joined=joined_steps(net))
    return LimitedNet(net, planned, [], iteration, Limit(memory, limit, fixed_bytes(net, planned), placement, folder),
                      lambda name, label: nullcontext())
