"""How long a net's steps take, before they have been measured: from multiply-adds and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node
from scaffe.nets.summary import MULTIPLY_ADDS

BYTES_A_SECOND = 4e9  # of one core, as below


@dataclass(frozen=True)
class Speed:
    """How fast layers are computed.

    Attributes:
        products: multiply-adds a second in float32; only the layers' ratios count much.
        n_bytes: a second that a layer without products reads and writes.
    """

    products: float
    n_bytes: float


CORE = Speed(40e9, BYTES_A_SECOND)


def estimated_seconds(net: Net, speed: Speed = CORE, backward: bool = True) -> tuple[float, ...]:
    """Of each step of ``net.steps``; or of those of forward. In backward, gradients of parameters take as long as
    forward, and so do those of bottoms; updates take no time here.

    Args:
        net: a built net.
        speed: of what computes.
        backward: whether there is one.
    """
    forward = [_forward(node, speed) for node in net.nodes]
    if not backward:
        return tuple(forward)
    seconds = [*forward, *[0.0] * (net.steps.n_steps - len(forward))]
    for layer, node in enumerate(net.nodes):
        steps, rows = net.steps.backward(layer), net.steps.rows(layer)
        for step in steps if node.needs_backward else ():
            seconds[step] = forward[layer] * ((not rows) + any(node.propagate_down)) / len(steps)
        for step in rows:
            seconds[step] = forward[layer] / len(rows)
    return tuple(seconds)


def _forward(node: Node, speed: Speed) -> float:
    n_bytes = sum(blob.n_elems * blob.dtype.itemsize for blob in (*node.bottoms, *node.tops))
    count = MULTIPLY_ADDS.get(node.param.type)
    passes_on = node.layer.shares_data or node.fused_offset
    return (count(node) / speed.products if count else 0.0) + (0.0 if passes_on else n_bytes / speed.n_bytes)
