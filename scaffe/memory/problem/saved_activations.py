"""How much a net that trains in limited memory keeps for backward, and has at once in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scaffe.layers.activation.relu import ReLU
from scaffe.layers.base.blob import Blob
from scaffe.memory.problem.tensors import is_long
from scaffe.nets.activation_memory import memory_owners
from scaffe.nets.fusion import keep_bottoms
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node

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


def keep_signs(net: Net) -> None:
    """Let ReLUs keep a bit of each element, where no other layer's backward reads the data, or does so in a step of its
    own, behind which nobody needs them any more.

    Args:
        net: a built net, after ``fuse_layers`` if that is called at all.
    """
    owner = memory_owners(net, "shares_data")
    able = [node for node in net.nodes if _may_keep_signs(net, node)]
    needed = {id(owner[id(blob)]) for index, node in enumerate(net.nodes)
              if node not in able and index not in net.steps.divided for blob in _read(node)}
    for node in able:
        if isinstance(node.layer, ReLU) and id(owner[id(node.bottoms[0])]) not in needed:
            node.layer.keeps_signs, node.layer.reads_bottoms = True, False
            node.seen_shapes = None
    net.reshape()


def _may_keep_signs(net: Net, node: Node) -> bool:
    """Whether a layer is a ReLU that runs its own backward, with data long enough to be worth it."""
    if not isinstance(node.layer, ReLU) or node.layer.relu_slope is None or any(
            other.includes is node for other in net.nodes):
        return False
    head = net.nodes[net.nodes.index(node) - node.fused_offset]
    is_covered = 0 < node.fused_offset <= head.layer.n_fused_back
    return node.needs_backward and not is_covered and is_long(node.bottoms[0])


def _read(node: Node) -> list[Blob]:
    """The blobs whose data the layer's backward reads."""
    if not node.needs_backward:
        return []
    return [*(node.bottoms if node.layer.reads_bottoms else ()), *(node.tops if node.layer.reads_tops else ())]
