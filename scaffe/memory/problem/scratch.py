"""What passes of a net work in on a device (its scratch arena), counted before they run: the same for training, which
has plans, and for ``summary``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from scaffe.layers.arithmetic.scale import Affine
from scaffe.layers.base.layer import Layer
from scaffe.layers.fully_connected.inner_product import InnerProduct
from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import AHEAD_BYTES, Part, arena, together
from scaffe.layers.kernels.cuda.channels import norm_parts, parts_of
from scaffe.layers.kernels.cuda.cudnn import estimate
from scaffe.layers.kernels.cuda.deferred import MOST_BYTES
from scaffe.layers.kernels.cuda.launch import BLOCKS_PER_MULTIPROCESSOR, most_blocks, wide
from scaffe.layers.kernels.cuda.pooling_lrn import lrn_images
from scaffe.layers.kernels.specs import ConvPasses, ConvSpec, NormPasses, NormSpec
from scaffe.layers.normalization.batch_norm import BN, BatchNorm
from scaffe.layers.normalization.lrn import Lrn
from scaffe.layers.vision.convolution import Convolution, Deconvolution
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node

Takes = list[tuple[Part, ...]]
N_MULTIPROCESSORS = 132  # an H100's, and an H200's


@dataclass(frozen=True)
class Workspaces:
    """What the scratch arena's length depends on beside shapes.

    Attributes:
        n_blocks: blocks of 256 threads that fill the device.
        convolution, norm: what each of the passes of a geometry takes of the arena at once.
    """

    n_blocks: int
    convolution: Callable[[ConvSpec, ConvPasses], Takes]
    norm: Callable[[NormSpec, NormPasses], Takes]


def workspaces_here() -> Workspaces:
    """Those of the current device: its plans say what each pass takes. Plans are built, and timed unless they have been
    before."""
    from scaffe.layers.kernels import cuda

    def asked(make: Callable[[Any], Any], spec: Any, passes: Any) -> Takes:
        found: Takes = make(spec).scratch(passes)
        return found
    return Workspaces(most_blocks(), partial(asked, cuda.convolution), partial(asked, cuda.batch_norm))


def estimated_workspaces(tf32: bool = True) -> Workspaces:
    """Those of a card of an H100's or an H200's size that is not here; cuDNN's workspaces are estimated."""
    n_blocks = BLOCKS_PER_MULTIPROCESSOR * N_MULTIPROCESSORS
    return Workspaces(n_blocks, partial(estimate.scratch, tf32=tf32), lambda spec, passes: [norm_parts(spec, n_blocks)])


def scratch_bytes(net: Net, works: Workspaces, backward: bool = True, has_copies: bool = False) -> int:
    """The length in bytes of the arena in which a net's passes run, after ``fuse_layers``.

    Args:
        backward: whether it runs backward too.
        has_copies: whether there will be copies of all weights in a half type, as there are in training.
    """
    heads = [node for node in net.nodes if not node.fused_offset]
    takes = [parts for node in heads for parts in _takes(node, works, backward)]
    takes += [] if has_copies else [parts for node in heads for parts in _narrowed_weights(node.layer)]
    return max(map(together, takes), default=0)


def waiting_bytes(net: Net) -> int:
    """The most bytes that convolutions' gradients of weights take in training until one launch brings them to Caffe's
    order, where nothing moves."""
    taken = sum(together([(node.layer.spec.weight_shape, node.layer.spec.dtype)]) for node in net.nodes
                if isinstance(node.layer, (Convolution, Deconvolution)) and node.needs_backward
                and node.layer.param_propagate_down[0])
    return min(taken, MOST_BYTES)


def reserve_scratch(net: Net, backward: bool = True) -> int:
    """Build the plans of the passes of a net on the current device, and take the arena in which they run; what they
    were timed on goes back. Returns ``held_bytes``."""
    arena.reserve((scratch_bytes(net, workspaces_here(), backward), "u1"))
    device.give_back()
    return held_bytes()


def taken_bytes(net: Net, works: Workspaces) -> int:
    """As ``held_bytes`` once a net's training has its arena, on a card that it need not be on."""
    return scratch_bytes(net, works, has_copies=True) + AHEAD_BYTES


def held_bytes() -> int:
    """Bytes of the arena on the current device, and of what recordings hold."""
    return arena.n_bytes + AHEAD_BYTES


def _takes(node: Node, works: Workspaces, backward: bool) -> Iterator[tuple[Part, ...]]:
    layer, wanted = node.layer, node.propagate_down if backward and node.needs_backward else ()
    if isinstance(layer, (Convolution, Deconvolution)):
        yield from works.convolution(layer.spec, layer.passes(wanted))
        yield from _bias_gradient(node, works, wanted)
    elif isinstance(layer, InnerProduct):
        yield from _bias_gradient(node, works, wanted)
    elif isinstance(layer, BatchNorm) and layer.spec is not None:
        yield from works.norm(layer.spec, layer.passes(node.bottoms, node.tops, wanted))
    elif isinstance(layer, BN):
        yield norm_parts(NormSpec(node.bottoms[0].shape, 0.0, 0.0, node.bottoms[0].dtype), works.n_blocks)
    elif isinstance(layer, Lrn) and any(wanted):
        shape, dtype = node.bottoms[0].shape, node.bottoms[0].dtype
        yield ((lrn_images(shape, dtype) * node.bottoms[0].count(1), wide(dtype)),)
    elif isinstance(layer, Affine) and wanted:
        yield (_sums(node, works),)


def _bias_gradient(node: Node, works: Workspaces, wanted: Sequence[bool]) -> Takes:
    learns = len(wanted) > 0 and node.layer.param_propagate_down[1:] == [True]
    return [(_sums(node, works, node.layer.blobs[1].n_elems),)] if learns else []


def _sums(node: Node, works: Workspaces, n_channels: int = 0) -> Part:
    """The partial sums of two sums for each channel of a layer's top."""
    top = node.tops[0]
    n_channels = n_channels or top.shape[1]
    return parts_of(top.n_elems // max(n_channels, 1), n_channels, top.dtype, works.n_blocks)


def _narrowed_weights(layer: Layer) -> Takes:
    """An inner product's weights in a half type, unless copies in it are kept."""
    if not isinstance(layer, InnerProduct):
        return []
    weights, dtype = layer.blobs[0], layer.context.dtype
    return [((weights.shape, dtype),)] if dtype != weights.dtype and weights.kernel_copy is None else []
