"""What a backend offers: a module of kernels for one kind of memory. The CPU's and CUDA's are checked against this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np

from scaffe.layers.base.random import Stream
from scaffe.layers.kernels.norms import NormSpec
from scaffe.layers.kernels.plans import (
    Array,
    BatchNormPlan,
    DropoutPlan,
    LrnPlan,
    PoolingPlan,
    SoftmaxLossPlan,
    StochasticPoolingPlan,
    UniformPlan,
    UpdatePlan,
    WeightedPlan,
)
from scaffe.layers.kernels.specs import ConvSpec, Ints, LossSpec, LrnSpec, PoolSpec, Segment

Dtype = np.dtype | type


class Draws(Protocol):
    """Where a net's layers draw random numbers from while they run; a snapshot keeps the place."""

    def catch_up(self) -> None:
        """Take over a restart of the process's stream, ahead of recorded passes, which cannot look."""

    def to_bytes(self) -> bytes:
        """The place in the stream, which begins with the host's (``Stream.to_bytes``)."""

    def from_bytes(self, place: bytes) -> bool:
        """Go on from a place. Returns whether the numbers that follow are the same."""


class Staging(Protocol):
    """Batches on their way from the readers to the net."""

    @property
    def next(self) -> Callable[[], Sequence[Array]]:
        """Gives the next batch in the backend's memory; its arrays are good until the call after."""


class Backend(Protocol):
    """Kernels for one kind of memory. A module is one: ``kernels.cpu``, ``kernels.cuda``.

    Attributes:
        PLACE: "host" or "device", where buffers that ranks share are taken from.
        REUSES_ACTIVATIONS: whether memory is scarce, so that training keeps activations in an arena.
        RECORDS: whether stretches of layers are recorded (then this is a ``DeviceBackend``).
        CHECK_EVERY: iterations between two looks at the loss.
        xp: NumPy, or the module with NumPy's functions for the backend's arrays.
    """

    PLACE: str
    REUSES_ACTIVATIONS: bool
    RECORDS: bool
    CHECK_EVERY: int

    @property
    def xp(self) -> Any:
        """NumPy, or what stands in for it."""

    # -- the device ----------------------------------------------------------------------------------------
    def describe(self) -> str:
        """What computes, in one line."""

    def set_threads(self, n_threads: int) -> None:
        """Compute with that many threads of the host, where it is the host that computes."""

    def synchronize(self) -> None:
        """Wait for everything that was queued."""

    # -- memory --------------------------------------------------------------------------------------------
    def zeros(self, n_elems: int, dtype: Any, /) -> Array:
        """A flat array (n_elems,) of zeros."""

    def to_host(self, array: Array) -> np.ndarray:
        """The array where NumPy can read it: a copy, or the array itself where it lies there."""

    def to_device(self, array: Any, dtype: Any = None) -> Array:
        """The array where the kernels can read it, of that dtype if one is given; itself where it is there already."""

    def copy_part(self, target: Array, source: Array, /) -> None:
        """target = source: views of one shape and dtype, of any strides."""

    def scalar(self, number: Any, /) -> Any:
        """A number that a layer computed; it may stay on the device until somebody asks for its value."""

    def staging(self, next_batch: Callable[[], Sequence[np.ndarray]]) -> Staging:
        """Bring the batches that ``next_batch`` gives on the host to the backend's memory."""

    def on_host(self, layer_type: Any) -> Callable[..., Any]:
        """What makes a layer that runs on the host beside this backend: (param, context) → Layer."""

    # -- plans ---------------------------------------------------------------------------------------------
    def convolution(self, spec: ConvSpec) -> WeightedPlan:
        """A plan of a convolution. Raises LayerError for a geometry that cannot be."""

    def deconvolution(self, spec: ConvSpec) -> WeightedPlan:
        """A plan of the convolution with bottom and top exchanged; ``spec`` is that convolution's, without bias."""

    def inner_product(self, m: int, n: int, k: int, transpose: bool = False, dtype: Dtype = ...) -> WeightedPlan:
        """A plan of y (m, n) = x (m, k) wᵀ + b, with w (n, k), or (k, n) with ``transpose``."""

    def pooling(self, spec: PoolSpec, wants_mask: bool = False) -> PoolingPlan:
        """A plan of MAX or AVE pooling; ``wants_mask``: forward will be asked for one. Raises LayerError."""

    def stochastic_pooling(self, spec: PoolSpec) -> StochasticPoolingPlan:
        """A plan of STOCHASTIC pooling. Raises LayerError for a geometry that cannot be."""

    def lrn(self, spec: LrnSpec) -> LrnPlan:
        """A plan of local response normalisation."""

    def batch_norm(self, spec: NormSpec) -> BatchNormPlan:
        """A plan of batch normalisation."""

    def softmax_loss(self, spec: LossSpec) -> SoftmaxLossPlan:
        """A plan of the logistic loss of softmax."""

    def draws(self, rng: Stream) -> Draws:
        """Where a net's layers draw from, seeded by the process's stream."""

    def dropout(self, shape: Ints, channels_last: bool, ratio: float, draws: Any, dtype: Dtype = ...) -> DropoutPlan:
        """A plan of Dropout.

        Args:
            shape: logical; elements are drawn for in this order on the host.
            channels_last: how the arrays lie.
            ratio: share dropped, inside (0, 1).
            draws: what this backend's ``draws`` gave.
            dtype: of the arrays.
        """

    def uniform(self, shape: Ints, channels_last: bool, draws: Any, dtype: Dtype = ...) -> UniformPlan:
        """A plan that draws numbers in [0, 1); arguments as for ``dropout``."""

    # -- elementwise, on flat arrays -----------------------------------------------------------------------
    def relu_forward(self, x: Array, y: Array, slope: float) -> None:
        """y = x where x > 0, slope · x elsewhere. y may be x."""

    def relu_backward(self, y: Array, gy: Array, gx: Array, slope: float) -> None:
        """gx = gy where y > 0, slope · gy elsewhere. gx may be gy; y is the layer's input or output."""

    def add_relu(self, a: Array, b: Array, y: Array, slope: float) -> None:
        """y = a + b where that is above 0, slope · (a + b) elsewhere. y may be a."""

    def mask_scale(self, x: Array, mask: Array, scale: float, y: Array) -> None:
        """y = x · scale where mask, 0 elsewhere. y may be x."""

    # -- on rows (rows, channels) --------------------------------------------------------------------------
    def softmax_rows(self, x: Array, y: Array) -> None:
        """y = softmax of each row of x. y may be x."""

    def softmax_rows_back(self, y: Array, gy: Array, gx: Array) -> None:
        """gx = y (gy - sum(gy y)) for each row. gx may be gy."""

    def moments(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance (divided by the number of rows) of each column, float64 (channels,)."""

    def scale_rows(self, x: Array, scale: Array, bias: Array, y: Array, kept: Array | None = None,
                   relu_slope: float | None = None) -> None:
        """y = x · scale + bias, then ReLU of that slope if one is given. y may be x; ``kept`` takes a copy of x."""

    def scale_sums(self, x: Array, gy: Array) -> tuple[Array, Array]:
        """Sums over rows of gy x and of gy, float64 (channels,)."""


class Guard(Protocol):
    """Leaves out updates whose gradients are not finite, without a look by the host."""

    def look(self, gradients: Sequence[Array]) -> Array:
        """Look at flat arrays. Returns the flag, int32 (1,), not 0 where a number is not finite."""

    def checked(self, factor: Any) -> Array:
        """An update's factor with what ``look`` found beside it, for ``UpdatePlan.run``."""

    def take(self) -> float:
        """How many updates were left out since last time; waits for the device."""


class DeviceBackend(Backend, Protocol):
    """Kernels of a device that the host queues work for."""

    def configure(self, tf32: bool) -> None:
        """Whether float32 products may use TF32; for plans that are built from now on."""

    def record(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """What ``run`` queues, without running it: call the recording to launch that again."""

    def update_plan(self, rule: Any, segments: Sequence[Segment]) -> UpdatePlan:
        """A plan of an update rule over segments of flat arrays."""

    def clip_factor(self, diff: Array, limit: float, mean: float) -> Any:
        """What brings the norm of mean · diff down to the limit, 1 where it is no larger; for ``UpdatePlan.run``."""

    @property
    def Guard(self) -> Callable[[], Guard]:  # noqa: N802 - a class of the backend
        """Makes a guard."""


def is_device(kernels: Backend) -> TypeGuard[DeviceBackend]:
    """Whether a backend is a device's."""
    return kernels.PLACE == "device"
