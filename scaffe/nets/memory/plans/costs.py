"""How long a net's steps take, before they have been measured: from multiply-adds and bytes."""

from __future__ import annotations

from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node
from scaffe.nets.summary import MULTIPLY_ADDS

PRODUCTS_A_SECOND = 40e9  # multiply-adds of one core in float32; only the layers' ratios count much
BYTES_A_SECOND = 4e9  # that a layer without products reads and writes


def estimated_seconds(net: Net, n_threads: int = 1, backward: bool = True) -> tuple[float, ...]:
    """Of each of the 2n steps: forward of layer i is step i, its backward step 2n - 1 - i; or of the n of forward.

    Args:
        net: a built net.
        n_threads: that compute.
        backward: whether there is one.
    """
    forward = [_forward(node) / n_threads for node in net.nodes]
    if not backward:
        return tuple(forward)
    back = [seconds * (1 + any(node.propagate_down)) if node.needs_backward else 0.0
            for node, seconds in zip(net.nodes, forward, strict=True)]
    return (*forward, *reversed(back))


def _forward(node: Node) -> float:
    n_bytes = sum(blob.n_elems * blob.dtype.itemsize for blob in (*node.bottoms, *node.tops))
    count = MULTIPLY_ADDS.get(node.param.type)
    passes_on = node.layer.shares_data or node.fused_offset
    return (count(node) / PRODUCTS_A_SECOND if count else 0.0) + (0.0 if passes_on else n_bytes / BYTES_A_SECOND)
