"""What cuDNN's plans of convolutions work in, estimated without a card, from what its planner (9.28) reports for an
H100 and an H200: which plan is fastest only a card can say."""

from __future__ import annotations

from math import prod

from scaffe.layers.kernels.cuda.arena import SMALL_BYTES, Part
from scaffe.layers.kernels.cuda.cudnn.convolution import BY_DATA, BY_WEIGHTS, FORWARD, ConvKey, halves, widened
from scaffe.layers.kernels.specs import ConvPasses, ConvSpec

LOAD_BYTES = 16  # that channels fill where no copy is needed
SUMS_BYTES = 1179904  # of partial sums: the most that plans without copies ask for


def workspace_bytes(key: ConvKey) -> int:
    """Bytes of workspace of the plan that cuDNN guesses to be fastest.

    Its kernels for tensor cores read channels-last images of one group whose channels fill 16 bytes; of others it makes
    padded copies, and in float32 without TF32 copies in another order: of images and weights, and of what lies on the
    other side where float32's gradients, or several groups, are computed.
    """
    spec, itemsize = key.spec, key.dtype.itemsize
    lanes = LOAD_BYTES // itemsize
    on_tensor_cores = itemsize == 2 or key.tf32
    if on_tensor_cores and spec.group == 1 and spec.in_shape[1] % lanes == spec.n_output % lanes == 0:
        return SUMS_BYTES
    pads = lanes if on_tensor_cores and spec.group == 1 else 1
    x, w = _padded(spec.in_shape, pads), _padded(spec.weight_shape, pads)
    copies_y = spec.group > 1 or (itemsize == 4 and not (on_tensor_cores and key.kind == FORWARD))
    return itemsize * (x + w + copies_y * prod(spec.out_shape))


def scratch(spec: ConvSpec, passes: ConvPasses, tf32: bool = True) -> list[tuple[Part, ...]]:
    """What passes of a convolution take of the arena at once, as ``Convolution.scratch`` says of plans that were built:
    where a batch's would work in too much, micro-batches are taken to be as fast."""
    kinds = {FORWARD: passes.forward, BY_DATA: passes.by_data, BY_WEIGHTS: passes.by_weights}
    weights: Part = (spec.weight_shape, spec.dtype)
    return [(weights, (_of_batch(ConvKey(kind, widened(spec), tf32)), "u1")) for kind, runs in kinds.items() if runs]


def _of_batch(key: ConvKey) -> int:
    found = [workspace_bytes(each) for each in (key, *halves(key))]
    return next((n_bytes for n_bytes in found if n_bytes <= SMALL_BYTES), found[-1])


def _padded(shape: tuple[int, ...], pads: int) -> int:
    """Elements of (N, C, spatial...) with channels in whole multiples."""
    return prod(shape) // max(shape[1], 1) * -(-shape[1] // pads) * pads
