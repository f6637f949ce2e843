"""The interface of a backend, a module of kernels for one kind of memory. mypy checks that both backends have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeGuard

import numpy as np

from scaffe.layers.base.random import Stream
from scaffe.layers.kernels.plans import (
    Array,
    BatchNormPlan,
    DropoutPlan,
    InferencePlan,
    LrnPlan,
    PoolingPlan,
    SoftmaxLossPlan,
    StochasticPoolingPlan,
    UniformPlan,
    UpdatePlan,
    WeightedPlan,
    Workers,
)
from scaffe.layers.kernels.specs import ConvSpec, Ints, LossSpec, LrnSpec, NormSpec, PoolSpec, Segment

Dtype = np.dtype | type


class Draws(Protocol):
    """The random generator of a net's layers in forward. Snapshots save its state."""

    def catch_up(self) -> None:
        """Take a new seed if the process's stream was restarted. Called before a recorded pass is replayed."""

    def to_bytes(self) -> bytes:
        """The state; its first bytes are those of the host's stream (``Stream.to_bytes``)."""

    def from_bytes(self, place: bytes) -> bool:
        """Continue from a saved state. Returns whether the same numbers follow as after saving."""


class Staging(Protocol):
    """Moves batches from the readers to the backend's memory."""

    @property
    def next(self) -> Callable[[], Sequence[Array]]:
        """A function that returns the next batch; its arrays are valid until the next call."""


class Pixels(Protocol):
    """Converts batches of pixels (uint8) to the net's numbers, with the same bits as a reader that gives floats."""

    def run(self, pixels: Array, places: Array, y: Array) -> None:
        """y = (pixels - mean) · scale, mirrored: from uint8 (n, height, width, channels), cropped; ``places``, int32
        (n, 3), are the crop's first row and column, and 1 for an image to mirror. y is flat, in storage order, of the
        net's type."""


class Backend(Protocol):
    """Kernels for one kind of memory; the modules ``kernels.cpu`` and ``kernels.cuda`` implement it.

    PLACE, "host" or "device", is the memory in which ranks share buffers. Array functions with temporaries compute in
    pieces of PIECE_ELEMS. REUSES_ACTIVATIONS: training saves memory by placing activations in a shared arena. RECORDS:
    passes are recorded and replayed (then this is a ``DeviceBackend``). CHECK_EVERY: iterations between two reads of
    the loss by the host. xp: NumPy, or the module with its functions for the backend's arrays."""

    PIECE_ELEMS: int
    PLACE: str
    REUSES_ACTIVATIONS: bool
    RECORDS: bool
    CHECK_EVERY: int

    @property
    def xp(self) -> Any:
        """The array module, NumPy or CuPy."""

    # -- the device ----------------------------------------------------------------------------------------
    def describe(self) -> str:
        """One line that names the hardware or library that computes."""

    def set_threads(self, n_threads: int) -> None:
        """Use that many host threads for kernels; no effect on a device."""

    def workers(self) -> Workers | None:
        """The threads for per-image parallelism; None on a device."""

    def synchronize(self) -> None:
        """Wait until all queued work is done."""

    # -- memory --------------------------------------------------------------------------------------------
    def zeros(self, n_elems: int, dtype: Any, /) -> Array:
        """A flat array (n_elems,) of zeros."""

    def to_host(self, array: Array) -> np.ndarray:
        """The array in host memory: a copy, or the array itself if it is there already."""

    def to_device(self, array: Any, dtype: Any = None) -> Array:
        """The array in the backend's memory, converted to ``dtype`` if given; the array itself if it is that."""

    def copy_part(self, target: Array, source: Array, /) -> None:
        """target = source, for views of equal shape and any strides; converted if their types differ."""

    def scalar(self, number: Any, /) -> Any:
        """A number as the net returns it: on a device it stays there, and ``float`` waits for it."""

    def batch_allocator(self) -> Callable[[int], np.ndarray]:
        """The allocator of readers' batches: n_elems → a flat float32 array on the host; any thread may call it.

        ``staging`` moves batches from this memory to the backend's without another copy on the host."""

    def image_decoder(self) -> Any:
        """A decoder of image files into the backend's memory: a ``data.feeds.feed.PixelDevice``. Raises
        LayerError, which says why, if there is none."""

    def staging(self, next_batch: Callable[[], Sequence[Array]]) -> Staging:
        """A ``Staging`` of the batches that ``next_batch`` returns in host memory, or in that of ``image_decoder``."""

    def maker(self, layer_type: Any, param: Any, bottom: Sequence[Any], dtype: np.dtype) -> Callable[..., Any]:
        """The constructor, (param, context) → Layer, of a layer with these blobs in a net of ``dtype`` on this backend:
        ``layer_type``, or where the backend has no kernels for the case a ``HostFallback``, which runs it on the host
        in the parameters' type."""

    def place(self) -> Callable[[], None]:
        """A function that makes the device and stream that are current now current again, on the thread that calls it;
        on the CPU it does nothing."""

    # -- plans ---------------------------------------------------------------------------------------------
    def convolution(self, spec: ConvSpec) -> WeightedPlan:
        """A plan of a convolution. Raises LayerError for an impossible geometry."""

    def inference_convolution(self, spec: ConvSpec, relu_slope: float | None, adds: bool) -> InferencePlan | None:
        """A plan of a convolution's forward, with a bias, for inference; None if there is none faster than
        ``convolution``'s. In the same pass, another blob is added if ``adds``, then a ReLU of that slope below 0 runs
        (None: no ReLU)."""

    def deconvolution(self, spec: ConvSpec) -> WeightedPlan:
        """A plan of a deconvolution. ``spec`` is the convolution from its top to its bottom, without bias."""

    def inner_product(self, m: int, n: int, k: int, transpose: bool = False, dtype: Dtype = ...) -> WeightedPlan:
        """A plan of y (m, n) = x (m, k) wᵀ + b (n,), with w (n, k); or x w + b, with w (k, n), if ``transpose``."""

    def pooling(self, spec: PoolSpec, wants_mask: bool = False) -> PoolingPlan:
        """A plan of MAX or AVE pooling, whose ``forward`` will be given a mask to fill if ``wants_mask``. Raises
        LayerError for an impossible geometry."""

    def stochastic_pooling(self, spec: PoolSpec) -> StochasticPoolingPlan:
        """A plan of STOCHASTIC pooling. Raises LayerError for an impossible geometry."""

    def lrn(self, spec: LrnSpec) -> LrnPlan:
        """A plan of local response normalisation."""

    def batch_norm(self, spec: NormSpec) -> BatchNormPlan:
        """A plan of batch normalisation."""

    def softmax_loss(self, spec: LossSpec) -> SoftmaxLossPlan:
        """A plan of the multinomial logistic loss of softmax."""

    def draws(self, rng: Stream) -> Draws:
        """The random generator of a net's layers, seeded by the process's stream."""

    def dropout(self, shape: Ints, channels_last: bool, ratio: float, draws: Any, dtype: Dtype = ...,
                scales: bool = ...) -> DropoutPlan:
        """A plan of Dropout for arrays of a logical shape and ``dtype``: an element is dropped with probability
        ``ratio``, from 0 to below 1, by ``draws``, what this backend's ``draws`` returned, on the CPU in Caffe's
        element order; kept ones are multiplied by 1 / (1 - ratio) if ``scales``."""

    def uniform(self, shape: Ints, channels_last: bool, draws: Any, dtype: Dtype = ...) -> UniformPlan:
        """A plan that draws numbers in [0, 1); arguments as for ``dropout``."""

    # -- elementwise, on flat arrays -----------------------------------------------------------------------
    def relu_forward(self, x: Array, y: Array, slope: float) -> None:
        """y = x where x > 0, slope · x elsewhere. Flat arrays; y may be x."""

    def relu_backward(self, y: Array, gy: Array, gx: Array, slope: float) -> None:
        """gx = gy where y > 0, slope · gy elsewhere. y is the layer's input or its output; gx may be gy."""

    def save_sign_mask(self, y: Array, mask: Array) -> None:
        """Set the bits of the elements of y, flat, above 0, and clear all others: words of 32 bits, as ``extents`` has
        them."""

    def relu_backward_mask(self, mask: Array, gy: Array, gx: Array, slope: float) -> None:
        """gx = gy where ``save_sign_mask`` has set the bit, slope · gy elsewhere. Flat arrays; gx may be gy."""

    def add_relu(self, a: Array, b: Array, y: Array, slope: float) -> None:
        """y = a + b where that is above 0, slope · (a + b) elsewhere. y may be a."""

    def add_up(self, xs: Sequence[Array], y: Array, signs: Array | None = None) -> None:
        """y = ((x0 + x1) + x2) + ... for two or more flat arrays. y may be x0.

        If ``signs`` is given, of y's shape, y is 0 where it is not above 0.
        """

    def mask_scale(self, x: Array, mask: Array, scale: float, y: Array) -> None:
        """y = x · scale where mask is true, 0 elsewhere. y may be x."""

    # -- on passes -----------------------------------------------------------------------------------------
    def deferring(self, wanted: bool = True) -> AbstractContextManager[None]:
        """In a with-block, small work of layers may wait for its end, to be launched together, or not: running sums of
        batch norm, gradients of weights."""

    def finish_deferred(self) -> None:
        """Do what waits: from here on it may be read."""

    # -- on rows (rows, channels) --------------------------------------------------------------------------
    def softmax_rows(self, x: Array, y: Array) -> None:
        """y = softmax of each row of x. y may be x."""

    def softmax_rows_back(self, y: Array, gy: Array, gx: Array) -> None:
        """Gradient of softmax: gx = y (gy - sum(gy y)) for each row. gx may be gy."""

    def moments(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance of each column, float64 (channels,). The variance divides by the number of rows."""

    def scale_rows(self, x: Array, scale: Array, bias: Array, y: Array, kept: Array | None = None,
                   relu_slope: float | None = None) -> None:
        """y (rows, channels) = x · scale + bias, both (channels,), then a ReLU of that slope below 0 if one is given. y
        may be x; ``kept`` gets a copy of x first."""

    def scale_sums(self, x: Array, gy: Array) -> tuple[Array, Array]:
        """Sums over the rows of gy · x and of gy, each float64 (channels,): the gradients of scale and bias."""

    def pixels(self, change: Any) -> Pixels:
        """A converter of pixels; ``change`` has mean, row_stride, column_stride and scale."""


class Guard(Protocol):
    """Skips updates whose gradients are not finite, and adapts fp16's factor on the loss to them. All of it runs on the
    device; the host does not wait.

    Attributes:
        scale, inverse: the factor on the loss and 1 / factor, each float32 () on the device.
    """

    scale: Array
    inverse: Array

    def look(self, gradients: Sequence[Array]) -> Array:
        """Check flat arrays. Returns a flag on the device, int32 (1,): not 0 if some number is not finite."""

    def checked(self, factor: Any) -> Array:
        """An update's factor, a number or from ``clip_factor``, times ``inverse``, together with the flag of the last
        ``look``, as ``UpdatePlan.run`` takes it."""

    def adapt(self, patience: int, largest: float) -> None:
        """Halve the factor, to 1 at the least, where the flag of the last ``look`` is set; else double it, to
        ``largest`` at most, in every ``patience``-th iteration without an overflow."""

    def read(self) -> tuple[float, int]:
        """The factor, and the iterations without an overflow. Waits for the device."""


class DeviceBackend(Backend, Protocol):
    """A backend whose kernels run on a device; the host queues work there."""

    def configure(self, tf32: bool) -> None:
        """Set whether float32 products may use TF32, in plans built from now on."""

    def record(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """Record the work that ``run`` queues, without executing it. Calling the result launches the work."""

    def kernel_machine(self) -> str:
        """The card, driver and libraries that such choices are for."""

    def kernel_choices(self) -> Mapping[str, bytes]:
        """What this machine has chosen among kernels by timing them, for ``adopt_kernel_choices`` on another one."""

    def adopt_kernel_choices(self, choices: Mapping[str, bytes]) -> None:
        """Choose what another machine has chosen, as far as it has the same card, driver and libraries: both then
        compute the same bits."""

    def copy_weights(self, w: Array, order: tuple[int, int], copy: Array) -> None:
        """Write weights (O, I, K), float32, flat, to a copy for kernels of a half type, (O, K, I); ``order`` is I and
        K."""

    def update_plan(self, rule: Any, segments: Sequence[Segment]) -> UpdatePlan:
        """A plan of an update rule over segments of the flat parameter buffers."""

    def clip_factor(self, diff: Array, limit: float, mean: Any) -> Any:
        """The factor, on the device, as ``UpdatePlan.run`` takes it, that scales the L2 norm of mean · diff, flat
        gradients, down to ``limit`` (Caffe's clip_gradients); 1 if it is not above. ``mean``: a number, or an array
        () on the device."""

    @property
    def Guard(self) -> Callable[..., Guard]:  # noqa: N802 - a class of the backend
        """The class of guards, made of a first factor and iterations without an overflow."""


def is_device(kernels: Backend) -> TypeGuard[DeviceBackend]:
    """Whether the backend's kernels run on a device."""
    return kernels.PLACE == "device"
