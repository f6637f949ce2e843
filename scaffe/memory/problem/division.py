"""Which layers run backward in two steps on a device, so that less of their data and diffs is there at once."""

from __future__ import annotations

from scaffe.memory.problem.activations import divide_backward, divisible, set_sign_masks, use_sign_masks
from scaffe.memory.problem.device_bytes import kept_bytes
from scaffe.memory.problem.tensors import activation_tensors
from scaffe.nets.net import Net


def save_less_on_device(net: Net) -> None:
    """Have layers of a net on a device save less for backward: ReLUs save sign masks. Backward of the convolutions that
    use more bytes than any other step is divided, if the net then needs less at least. That launches the same kernels
    in another order: it takes no longer, and the bits are the same."""
    use_sign_masks(net)
    most, steps = _most_bytes(net), net.steps
    divide_backward(net, _fullest(net))
    masked = use_sign_masks(net)
    if _most_bytes(net) >= most:
        net.steps = steps
        set_sign_masks(net, masked, False)


def _fullest(net: Net) -> set[int]:
    """The divisible layers whose backward uses more bytes than any step of others."""
    used, steps = _used_bytes(net), {layer: net.steps.backward(layer)[0] for layer in divisible(net)}
    others = max((n_bytes for step, n_bytes in enumerate(used) if step not in steps.values()), default=0)
    return {layer for layer, step in steps.items() if used[step] > others}


def _most_bytes(net: Net) -> int:
    """Bytes of activations that some step needs at least, with what all layers keep."""
    return kept_bytes(net) + max(_used_bytes(net), default=0)


def _used_bytes(net: Net) -> list[int]:
    """Bytes of activations that each step finds in memory if they leave it whenever they lie idle."""
    found = [0] * net.steps.n_steps
    for each in activation_tensors(net):
        for steps in each.tensor.uses:
            for step in range(steps[0], steps[-1] + 1):
                found[step] += each.tensor.n_bytes
    return found
