"""How much a net that trains in limited memory keeps for backward, and has at once in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scaffe.nets.fusion import keep_bottoms
from scaffe.nets.memory.signs import keep_signs
from scaffe.nets.net import Net

NEAR = 0.95  # of a limit: where a net needs more of it at least, it is made to need less


def keep_little(net: Net, limit: int, least: Callable[[], int]) -> None:
    """Have layers keep less for backward: those in place that would copy their bottom, and ReLUs. Where that is not
    enough, backward of convolutions is divided, which costs a pass over the data of more ReLUs.

    Args:
        net: a built net.
        limit: bytes that all takes together.
        least: the bytes in which the net, as it is then, trains at least.
    """
    keep_bottoms(net)
    keep_signs(net)
    if least() > NEAR * limit:
        keep_least(net)


def keep_least(net: Net) -> None:
    """Have layers keep as little as they can, whatever that costs."""
    keep_bottoms(net)
    divide_backward(net)
    keep_signs(net)


def divide_backward(net: Net) -> None:
    """Let layers that can compute their parameters' gradients first, in a step of its own, so that their bottoms' data
    and diffs are never needed at once."""
    able = (index for index, node in enumerate(net.nodes) if node.layer.divides and node.needs_backward
            and any(node.propagate_down) and any(node.layer.param_propagate_down) and not node.layer.n_fused_back)
    net.steps = replace(net.steps, divided=frozenset(able))
