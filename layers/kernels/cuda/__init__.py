"""The GPU backend: kernels of cuDNN and cuBLAS where they have one, else our own.

Arrays are CuPy's, in storage order, contiguous. With half types (float16, bfloat16), weights, biases, their gradients
and numbers per channel are float32. Work is queued on the current stream; the host waits only where that is stated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.cublas import precision
from scaffe.layers.kernels.device import place
from scaffe.layers.kernels.plans import BatchNormPlan, InferencePlan, WeightedPlan, find_kernel
from scaffe.layers.kernels.specs import ConvSpec, NormSpec

if TYPE_CHECKING:  # imported when first asked for, by __getattr__
    from scaffe.layers.kernels.cuda.arena import Recording as record
    from scaffe.layers.kernels.cuda.channels import moments, scale_rows, scale_sums
    from scaffe.layers.kernels.cuda.copies import Pixels as pixels
    from scaffe.layers.kernels.cuda.copies import Staging as staging
    from scaffe.layers.kernels.cuda.copies import copy_part
    from scaffe.layers.kernels.cuda.decoding import ImageDecoder
    from scaffe.layers.kernels.cuda.deferred import deferring, finish_deferred
    from scaffe.layers.kernels.cuda.elementwise import Draws as draws
    from scaffe.layers.kernels.cuda.elementwise import Dropout as dropout
    from scaffe.layers.kernels.cuda.elementwise import Uniform as uniform
    from scaffe.layers.kernels.cuda.elementwise import (
        add_relu,
        add_up,
        mask_scale,
        relu_backward,
        relu_backward_mask,
        relu_forward,
        save_sign_mask,
    )
    from scaffe.layers.kernels.cuda.pooling_lrn import Lrn as lrn
    from scaffe.layers.kernels.cuda.pooling_lrn import Pooling as pooling
    from scaffe.layers.kernels.cuda.pooling_lrn import Pooling as stochastic_pooling
    from scaffe.layers.kernels.cuda.products import InnerProduct as inner_product
    from scaffe.layers.kernels.cuda.softmax import SoftmaxLoss as softmax_loss
    from scaffe.layers.kernels.cuda.softmax import softmax_rows, softmax_rows_back
    from scaffe.layers.kernels.cuda.updates import Guard, clip_factor
    from scaffe.layers.kernels.cuda.updates import UpdatePlan as update_plan

    xp: Any

__all__ = ["CHECK_EVERY", "Guard", "PIECE_ELEMS", "PLACE", "RECORDS", "REUSES_ACTIVATIONS", "add_relu", "add_up",
           "adopt_kernel_choices", "batch_allocator", "batch_norm", "clip_factor", "configure", "convolution",
           "copy_part", "copy_weights", "deconvolution", "deferring", "describe", "draws", "dropout",
           "finish_deferred", "image_decoder", "inference_convolution", "inner_product", "kernel_choices",
           "kernel_machine", "lrn",
           "maker", "mask_scale", "moments", "pixels", "place", "pooling", "record", "relu_backward",
           "relu_backward_mask", "relu_forward", "save_sign_mask", "scalar", "scale_rows", "scale_sums",
           "set_threads", "softmax_loss", "softmax_rows", "softmax_rows_back", "staging", "stochastic_pooling",
           "synchronize", "to_device", "to_host", "uniform", "update_plan", "workers", "xp", "zeros"]

PIECE_ELEMS = 1 << 22  # long beside a launch, and 16 MiB of float32
PLACE = "device"  # the memory in which ranks share buffers

REUSES_ACTIVATIONS = True  # memory is scarce: commands that train keep activations in an arena
RECORDS = True  # stretches of layers become CUDA graphs
CHECK_EVERY = 20  # iterations between two looks at the loss: a look makes the host wait for the device


def configure(tf32: bool) -> None:
    """Set whether float32 products may use TF32, in plans built from now on."""
    precision.tf32 = tf32


def set_threads(n_threads: int) -> None:
    """Nothing to set: kernels run on the device."""


def workers() -> None:
    """None: the device runs a whole batch at once."""


def describe() -> str:
    """One line: the device, and what computes convolutions."""
    from scaffe.layers.kernels.cuda.cudnn.graphs import reason

    properties = device.describe(device.load().cuda.runtime.getDevice())
    return f"{properties['Name']}, compute capability {properties['Compute capability']}; {reason()}"


def convolution(spec: ConvSpec) -> WeightedPlan:
    """A plan of a convolution. Raises LayerError for an impossible geometry."""
    from scaffe.layers.kernels.cuda import products
    from scaffe.layers.kernels.cuda.cudnn import convolution as cudnn_convolution

    spec.check()
    return cudnn_convolution.convolution(spec) or products.Convolution(spec)


def inference_convolution(spec: ConvSpec, relu_slope: float | None, adds: bool) -> InferencePlan | None:
    """No plan: cuDNN takes Caffe's weights as they are, and fuses what follows already."""
    return None


def deconvolution(spec: ConvSpec) -> WeightedPlan:
    """A plan of a deconvolution. ``spec`` is the convolution from its top to its bottom, without bias."""
    from scaffe.layers.kernels.cpu.conv.portable import Deconvolution
    from scaffe.layers.kernels.cuda.channels import add_bias, add_gradients

    return Deconvolution(convolution(spec), add_bias, add_gradients)


def copy_weights(w: Any, order: tuple[int, int], copy: Any) -> None:
    """Write weights (O, I, K), flat, to a copy for kernels of a half type, (O, K, I); ``order`` has the sizes I, K."""
    from scaffe.layers.kernels.cuda.products import Weights

    Weights((w.size // (order[0] * order[1]), *order), copy.dtype).lay_out(w, copy)


def maker(layer_type: Any, param: Any, bottom: Sequence[Any], dtype: np.dtype) -> Callable[..., Any]:
    """The layer's type; for one without GPU kernels, one that runs it on the host, its blobs copied there and back."""
    if not layer_type.host_only:
        found: Callable[..., Any] = layer_type
        return found
    from scaffe.layers.base.host_fallback import HostFallback
    from scaffe.layers.kernels import cpu

    return partial(HostFallback, cpu, layer_type)


def batch_allocator() -> Callable[[int], np.ndarray]:
    """What gives readers page-locked memory for their batches, so that the main thread need not copy them there."""
    from scaffe.layers.kernels.cuda.copies import pinned_allocator

    return pinned_allocator()


def image_decoder() -> ImageDecoder:
    """A decoder of image files into the current device's memory. Raises LayerError if there is none."""
    from scaffe.layers.kernels.cuda import decoding, nvimagecodec

    return decoding.ImageDecoder(nvimagecodec.maker())


def kernel_machine() -> str:
    """The card, driver and libraries that choices are for; empty where nothing is chosen."""
    from scaffe.layers.kernels.cuda.cudnn import exchange

    return exchange.machine()


def kernel_choices() -> Mapping[str, bytes]:
    """What this machine has chosen by timing, for ``adopt_kernel_choices`` on another one."""
    from scaffe.layers.kernels.cuda.cudnn import exchange

    return exchange.kept_choices()


def adopt_kernel_choices(choices: Mapping[str, bytes]) -> None:
    """Choose what another machine has chosen, as far as it has the same card, driver and libraries."""
    from scaffe.layers.kernels.cuda.cudnn import exchange

    exchange.adopt(choices)


def scalar(number: Any) -> Any:
    """The number itself, on the device; converting it to float makes the host wait."""
    return number


def synchronize() -> None:
    """Wait for everything that was queued on the current stream."""
    device.load().cuda.get_current_stream().synchronize()


def batch_norm(spec: NormSpec) -> BatchNormPlan:
    """A plan of batch normalisation."""
    from scaffe.layers.kernels.cuda import channels
    from scaffe.layers.kernels.cuda.cudnn import batch_norm as cudnn_batch_norm

    return cudnn_batch_norm.batch_norm(spec) or channels.BatchNorm(spec)


def to_host(array: Any) -> np.ndarray:
    """A copy of the array in host memory, for which the host waits; a NumPy array is returned as it is."""
    if isinstance(array, np.ndarray):
        return array
    # CuPy would put an array in order within `with stream`, and forget the stream that `use()` has chosen.
    in_order = array if array.flags.c_contiguous else device.load().ascontiguousarray(array)
    host: np.ndarray = in_order.get()
    return host


def to_device(array: Any, dtype: Any = None) -> Any:
    """The array on the device: a copy if it is in host memory or of another type, else itself."""
    return device.load().asarray(array, dtype)


def zeros(n_elems: int, dtype: Any) -> Any:
    """A flat array of zeros."""
    return device.load().zeros(n_elems, dtype)


PLANS = {"draws": ("elementwise", "Draws"), "dropout": ("elementwise", "Dropout"),
         "inner_product": ("products", "InnerProduct"), "lrn": ("pooling_lrn", "Lrn"), "pixels": ("copies", "Pixels"),
         "pooling": ("pooling_lrn", "Pooling"), "record": ("arena", "Recording"),
         "softmax_loss": ("softmax", "SoftmaxLoss"), "staging": ("copies", "Staging"),
         "stochastic_pooling": ("pooling_lrn", "Pooling"), "uniform": ("elementwise", "Uniform"),
         "update_plan": ("updates", "UpdatePlan")}
"""The functions of DeviceBackend that are a class: its module and name."""


def __getattr__(name: str) -> Any:
    """The array module ``xp``, the classes of ``PLANS`` and elementwise kernels, imported at their first use."""
    if name == "xp":
        return device.load()
    return find_kernel(__name__, name, PLANS, ("elementwise", "softmax", "channels", "updates", "copies",
                                               "deferred"))
