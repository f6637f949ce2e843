"""The CPU backend: kernels of oneDNN where it is installed and supports the case, else of numba and BLAS."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels.cpu.arrays import as_bits, zeros
from scaffe.layers.kernels.cpu.conv.choice import convolution, inference_convolution
from scaffe.layers.kernels.cpu.onednn.library import attempt, library, reason, supports
from scaffe.layers.kernels.plans import PoolingPlan, WeightedPlan, Workers, find_kernel
from scaffe.layers.kernels.specs import ConvSpec, PoolSpec
from scaffe.threads import openmp_begins_with

if TYPE_CHECKING:  # imported when first asked for, by __getattr__
    from scaffe.layers.kernels.cpu.batch_norm_plan import BatchNorm as batch_norm
    from scaffe.layers.kernels.cpu.channels import moments, scale_rows, scale_sums
    from scaffe.layers.kernels.cpu.elementwise import Pixels as pixels
    from scaffe.layers.kernels.cpu.elementwise import (
        add_relu,
        add_up,
        mask_scale,
        relu_backward,
        relu_backward_mask,
        relu_forward,
        save_sign_mask,
    )
    from scaffe.layers.kernels.cpu.lrn_plan import Lrn as lrn
    from scaffe.layers.kernels.cpu.portable_pooling import Pooling as stochastic_pooling
    from scaffe.layers.kernels.cpu.random_numbers import Dropout as dropout
    from scaffe.layers.kernels.cpu.random_numbers import Uniform as uniform
    from scaffe.layers.kernels.cpu.softmax import SoftmaxLoss as softmax_loss
    from scaffe.layers.kernels.cpu.softmax import softmax_rows, softmax_rows_back

__all__ = ["CHECK_EVERY", "PIECE_ELEMS", "PLACE", "RECORDS", "REUSES_ACTIVATIONS", "add_relu", "add_up",
           "batch_allocator", "batch_norm", "convolution", "copy_part", "deconvolution", "deferring", "describe",
           "draws", "dropout", "finish_deferred", "image_decoder", "inference_convolution", "inner_product", "lrn",
           "maker", "mask_scale", "moments", "pixels", "place", "pooling", "relu_backward", "relu_backward_mask",
           "relu_forward", "save_sign_mask", "scalar", "scale_rows", "scale_sums", "set_threads", "softmax_loss",
           "softmax_rows", "softmax_rows_back", "staging", "stochastic_pooling", "synchronize", "to_device", "to_host",
           "uniform", "workers", "xp", "zeros"]

describe = reason
xp = np
scalar = float
PIECE_ELEMS = 1 << 16  # elements that stay in a core's cache
PLACE = "host"  # the memory in which ranks share buffers
REUSES_ACTIVATIONS = False  # memory is plenty, and people look at blobs
RECORDS = False  # passes run layer by layer: a call costs little here
CHECK_EVERY = 1  # iterations between two checks of the loss: a check costs nothing here
COPIED_BYTES = 1 << 22  # least bytes a thread copies: starting a thread takes a tenth of that copy's time
SINGLE = np.dtype(np.float32)
Plan = TypeVar("Plan")
_limits: list[Any] = []  # keeps the thread limits in force


def set_threads(n_threads: int) -> None:
    """Use that many threads in oneDNN, in the BLAS and in our own kernels."""
    from threadpoolctl import threadpool_limits

    from scaffe.layers.kernels.cpu.threads.parts import set_parts

    with openmp_begins_with(n_threads):
        library()
    _limits[:] = [threadpool_limits(n_threads)]
    set_parts(n_threads)
    workers.cache_clear()


@cache
def workers() -> Workers:
    """As many threads as were set, for per-image parallelism."""
    from scaffe.layers.kernels.cpu.threads.parts import WorkerThreads, n_threads

    return WorkerThreads(n_threads())


def to_host(array: np.ndarray) -> np.ndarray:
    """The array itself: it is in host memory."""
    return array


def to_device(array: Any, dtype: np.dtype | type | None = None) -> np.ndarray:
    """The array itself, or converted to ``dtype`` if given."""
    return np.asarray(array, dtype)


def synchronize() -> None:
    """Does nothing: CPU kernels have finished when they return."""


def deferring(wanted: bool = True) -> AbstractContextManager[None]:
    """Does nothing: a call costs little here."""
    return nullcontext()


def finish_deferred() -> None:
    """Nothing waits."""


def copy_part(target: np.ndarray, source: np.ndarray) -> None:
    """target = source, for views of equal shape and any strides; converts if their types differ."""
    from scaffe.layers.kernels.cpu.threads.parts import in_ranges

    into, out_of = (as_bits(target), as_bits(source)) if target.dtype == source.dtype else (target, source)
    most = target.nbytes // COPIED_BYTES
    if most > 1:
        in_ranges(len(into), lambda start, stop: np.copyto(into[start:stop], out_of[start:stop]), most)
    else:
        np.copyto(into, out_of)


def maker(layer_type: Any, param: Any, bottom: Sequence[Any], dtype: np.dtype) -> Callable[..., Any]:
    """The class of a layer; where it has no kernels for bfloat16 and ``dtype`` is that, a HostFallback in float32."""
    if dtype.kind == "f" or (layer_type.takes_half(param, bottom) and all(blob.dtype == dtype for blob in bottom)):
        found: Callable[..., Any] = layer_type
        return found
    from scaffe.layers.base.host_fallback import HostFallback

    return partial(HostFallback, sys.modules[__name__], layer_type)


def place() -> Callable[[], None]:
    """A function that does nothing: there is one CPU."""
    return lambda: None


def batch_allocator() -> Callable[[int], np.ndarray]:
    """The function that allocates readers' batches, in ordinary memory."""
    return lambda n_elems: np.empty(n_elems, np.float32)


def image_decoder() -> NoReturn:
    """Raises LayerError: a host's readers decode themselves."""
    raise LayerError("the net computes on the CPU")


class Staging:
    """Batches from the readers, which are in host memory already."""

    def __init__(self, next_batch: Callable[[], Sequence[np.ndarray]]) -> None:
        self.next = next_batch


staging = Staging


def deconvolution(spec: ConvSpec) -> WeightedPlan:
    """A plan of a deconvolution. ``spec`` is the convolution from its top to its bottom, without bias."""
    from scaffe.layers.kernels.cpu.channels import add_bias, add_gradients
    from scaffe.layers.kernels.cpu.conv.portable import Deconvolution

    return Deconvolution(convolution(spec), add_bias, add_gradients)


def inner_product(m: int, n: int, k: int, transpose: bool = False, dtype: np.dtype | type = np.float32) -> WeightedPlan:
    """A plan of y (m, n) = x (m, k) wᵀ + b (n,), with w (n, k); or x w + b, with w (k, n), if ``transpose``.

    oneDNN is used for float32: it is faster on large weights, and its rounding does not depend on the number of rows,
    by which BLAS libraries choose kernels. So 1, 2 and 4 ranks stay close to each other.
    """
    from scaffe.layers.kernels.cpu import gemv, inner_product_plan
    from scaffe.layers.kernels.cpu.onednn import inner_product as onednn
    from scaffe.layers.kernels.cpu.widened import WidenedProduct

    dtype, is_empty = np.dtype(dtype), min(m, n, k) == 0
    if dtype.kind == "V":
        half = None if is_empty else attempt(onednn.HalfInnerProduct, m, n, k, transpose, dtype)
        return half or WidenedProduct(inner_product(m, n, k, transpose))
    made = attempt(onednn.InnerProduct, m, n, k, transpose) if dtype == np.float32 and not is_empty else None
    plan = made or inner_product_plan.InnerProduct(m, n, k, transpose)
    if dtype != np.float32 or transpose:
        return plan
    return gemv.if_faster(inner_product_plan.if_faster(plan, m, n, k), m, n, k)


def pooling(spec: PoolSpec, wants_mask: bool = False) -> PoolingPlan:
    """A plan of MAX or AVE pooling. ``wants_mask``: whether ``forward`` will be given a mask to fill."""
    spec.check()
    if supports(spec) and not wants_mask:
        from scaffe.layers.kernels.cpu.onednn.primitive import Pooling as OnednnPooling
        from scaffe.layers.kernels.cpu.onednn.primitive import can_pool

        made = attempt(OnednnPooling, spec) if can_pool(spec) else None
        if made is not None:
            return made
    if spec.dtype.kind == "V":
        from scaffe.layers.kernels.cpu.widened import WidenedPooling

        return WidenedPooling(pooling(replace(spec, dtype=SINGLE)))
    from scaffe.layers.kernels.cpu.portable_pooling import Pooling

    return Pooling(spec)


def draws(rng: Stream) -> Stream:
    """The source of the random numbers of a net's layers: the stream itself."""
    return rng


PLANS = {"batch_norm": ("batch_norm_plan", "BatchNorm"), "dropout": ("random_numbers", "Dropout"),
         "lrn": ("lrn_plan", "Lrn"), "pixels": ("elementwise", "Pixels"), "softmax_loss": ("softmax", "SoftmaxLoss"),
         "stochastic_pooling": ("portable_pooling", "Pooling"),
         "uniform": ("random_numbers", "Uniform")}
"""The functions of Backend that are a plan's class: its module and name."""


def __getattr__(name: str) -> Any:
    """The classes of ``PLANS`` and elementwise kernels, imported (with numba) at their first use."""
    return find_kernel(__name__, name, PLANS, ("elementwise", "softmax", "channels"))
