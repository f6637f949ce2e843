"""Bytes of device memory that a net takes: parameters, activations, and what layers keep and work in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scaffe.layers.activation.relu import ReLU
from scaffe.layers.base.blob import Blob
from scaffe.layers.reshaping.copies import Split
from scaffe.memory.problem import layer_groups
from scaffe.memory.problem.activations import arena_bytes
from scaffe.memory.problem.costs import blobs_outside, made_in_passes
from scaffe.memory.problem.tensors import ActivationTensor
from scaffe.nets.blob_memory import aligned, kept_blobs
from scaffe.nets.fusion import norm_in_front
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node


def training_bytes(net: Net, n_histories: int) -> int:
    """Bytes of device memory that training takes without a limit, and without the workspace of layers' plans:
    ``bytes_beside_blobs``, the activations' arena and the blobs outside it, sign bits. Of a net after
    ``fuse_layers``."""
    return bytes_beside_blobs(net, n_histories) + _kept_length(net) + arena_bytes(net, True) + _sign_bits(net)


def _sign_bits(net: Net) -> int:
    """Bytes of the sign bits that ``join_sums`` will have saved at most; those that are saved ``kept_bytes`` finds."""
    return sum(node.bottoms[0].n_elems // 8 for node in net.nodes
               if isinstance(node.layer, Split) and node.layer.includes_relu and not node.layer.is_summed
               and norm_in_front(net.nodes, node.bottoms[0]) is not None)


def bytes_of_test_net(net: Net) -> int:
    """Bytes of device memory that a test net after ``fuse_layers`` takes in addition to the training net's: its blobs,
    parameters that only it has, what its layers keep and allocate in passes, and two prefetched batches."""
    own = sum(blob.n_elems * blob.dtype.itemsize for blob in net.own_blobs)
    return bytes_of_test_blobs(net) + own + kept_bytes(net) + made_in_passes(net) + _batches_bytes(net)


def bytes_of_test_blobs(net: Net) -> int:
    """Bytes of a test net's blobs alone."""
    return _kept_length(net) + arena_bytes(net, False)


def _kept_length(net: Net) -> int:
    return sum(aligned(blob.n_elems * blob.dtype.itemsize) for blob in kept_blobs(net).values())


def bytes_beside_blobs(net: Net, n_histories: int) -> int:
    """Bytes of device memory of everything but blobs: parameters, gradients and histories; what layers keep for
    backward and allocate in passes; two prefetched batches; the workspace of matrix products. Arguments as for
    ``training_bytes``."""
    from scaffe.layers.kernels.cuda.cublas import WORKSPACE_BYTES

    params = net.params.n_elems * net.params.dtype.itemsize * (2 + n_histories)
    if net.context.dtype != net.params.dtype:  # kernels read a copy
        params += net.params.n_elems * net.context.dtype.itemsize
    return params + _batches_bytes(net) + kept_bytes(net) + made_in_passes(net) + WORKSPACE_BYTES


def _batches_bytes(net: Net) -> int:
    """Bytes of two batches on their way to the device, and of those that readers decode there; 0 for layers that make
    their own."""
    return sum(2 * getattr(node.layer, "batch_bytes", 0) + getattr(node.layer, "device_bytes", 0) for node in net.nodes)


def unmovable_on_device(net: Net, activations: Sequence[ActivationTensor], scratch: int) -> int:
    """Bytes of device memory that no plan moves, without histories and what updates know of parameters. ``scratch``:
    bytes in which passes run, and that recordings hold."""
    return bytes_beside_blobs(net, 0) + blobs_outside(net, activations, True) + scratch


def unmovable_in_forward_on_device(net: Net, activations: Sequence[ActivationTensor], scratch: int) -> int:
    """The same of a net that runs forward alone, without gradients of parameters."""
    gradients = net.params.n_elems * net.params.dtype.itemsize
    return bytes_beside_blobs(net, 0) - gradients + blobs_outside(net, activations, False) + scratch


def update_bytes(net: Net) -> int:
    """Bytes of the tables by which update kernels find a net's parameters. This is the most they take: a memory plan
    divides parameters into chunks of an update, each of which may end within a chunk of the kernels."""
    from scaffe.layers.kernels.cuda.updates import CHUNK, CHUNK_ELEMS

    item = net.params.dtype.itemsize
    return CHUNK.itemsize * sum(-(-n_elems // CHUNK_ELEMS) + 1 + n_elems * item // layer_groups.CHUNK_BYTES
                                for n_elems in (param.blob.n_elems for param in net.params.params))


MOST_UNFOLDED_BYTES = 256 << 20  # of images that one convolution without cuDNN unfolds at once


def _pooling(node: Node) -> int:
    from scaffe.layers.kernels.cuda.pooling_lrn import MOST_SMALL

    p, n_elems = node.param.pooling_param, node.tops[0].n_elems
    taps = node.bottoms[0].count(2) if p.global_pooling else max(p.kernel_size, p.kernel_h) * max(
        p.kernel_size, p.kernel_w)
    places = n_elems * (1 if taps <= MOST_SMALL else 4)
    return {p.MAX: places, p.AVE: 0, p.STOCHASTIC: places + 4 * n_elems}[p.pool]


def _sign_mask(node: Node) -> int:
    """Bytes of a fused layer's sign mask; ``_array_bytes`` finds those of others."""
    return node.layer.sign_mask_bytes if isinstance(node.layer, ReLU) and node.fused_offset else 0


KEPT: dict[str, Callable[[Node], int]] = {
    "Pooling": _pooling, "Dropout": lambda node: node.tops[0].n_elems, "ReLU": _sign_mask}


def kept_bytes(net: Net) -> int:
    """Bytes that all layers together keep from forward to backward: copies, pooling positions, random masks, sign
    masks."""
    kept = sum(KEPT[node.param.type](node) for node in net.nodes if node.param.type in KEPT)
    return kept + sum(map(_array_bytes, net.nodes))


def _array_bytes(node: Node) -> int:
    """Bytes of the arrays and blobs among the layer's attributes; 0 for a layer that is fused to another."""
    if node.fused_offset:
        return 0
    shown = {id(blob) for blob in (*node.bottoms, *node.tops, *node.layer.blobs)}
    held = {id(value): _n_bytes(value) for value in vars(node.layer).values() if id(value) not in shown}
    return sum(held.values())


def _n_bytes(value: Any) -> int:
    if isinstance(value, Blob):
        return value.n_elems * value.dtype.itemsize
    return getattr(value, "nbytes", 0)


def unfolded_bytes(net: Net) -> int:
    """Bytes of workspace that convolutions need without cuDNN, for the net's largest: images unfolded (im2col), the
    weights in another layout, and their gradient."""
    return max((_unfolded(node) for node in net.nodes if node.param.type in ("Convolution", "Deconvolution")),
               default=0)


def _unfolded(node: Node) -> int:
    (x, y), weights = (node.bottoms[0], node.tops[0]), node.layer.blobs[0]
    if node.param.type == "Deconvolution":
        x, y = y, x
    itemsize = x.dtype.itemsize
    an_image = y.count(2) * x.shape[1] * weights.count(2) * itemsize
    n_at_once = max(1, min(x.shape[0], MOST_UNFOLDED_BYTES // max(an_image, 1)))
    return n_at_once * an_image + weights.n_elems * (itemsize + weights.dtype.itemsize)
