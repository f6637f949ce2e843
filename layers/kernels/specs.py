"""Geometry of convolution, pooling, LRN, loss and batch normalisation kernels, with the shape rules of Caffe 1.0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from scaffe.errors import LayerError

Ints = tuple[int, ...]
LONGEST = 2**31 - 1  # places along an axis: Caffe and the kernels count them in C's int


@dataclass(frozen=True)
class Thinned:
    """Images, logical (N, C, spatial...), of which only every step-th place of each spatial axis counts, from the first
    on. A gradient that is 0 elsewhere is kept as an array of ``kept_shape``."""

    shape: Ints
    step: Ints

    @property
    def kept_shape(self) -> Ints:
        """Logical (N, C, spatial...) of the places that count."""
        return (*self.shape[:2], *(-(-n // step) for n, step in zip(self.shape[2:], self.step, strict=True)))

    @property
    def n_places(self) -> int:
        """Places of the whole images."""
        return prod(self.shape) // self.shape[1]

    @property
    def n_kept_places(self) -> int:
        """Places that count."""
        return prod(self.kept_shape) // self.shape[1]

    @property
    def n_kept(self) -> int:
        """Elements of the places that count."""
        return prod(self.kept_shape)


@dataclass(frozen=True)
class ConvSpec:
    """A convolution of logical (N, C, spatial...) to ``n_output`` channels; kernel, stride, pad and dilation have one
    number per spatial axis. ``direct``: compute the sums of the definition, without algorithms such as Winograd's that
    round more."""

    in_shape: Ints
    n_output: int
    kernel: Ints
    stride: Ints
    pad: Ints
    dilation: Ints
    group: int = 1
    bias: bool = True
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))
    direct: bool = False

    @property
    def out_spatial(self) -> Ints:
        """Output size per axis: (in + 2 pad - (dilation (kernel - 1) + 1)) / stride + 1, rounded down."""
        axes = zip(self.in_shape[2:], self.kernel, self.stride, self.pad, self.dilation, strict=True)
        return tuple((n + 2 * p - (d * (k - 1) + 1)) // s + 1 for n, k, s, p, d in axes)

    @property
    def out_shape(self) -> Ints:
        """Logical (N, n_output, spatial...)."""
        return (self.in_shape[0], self.n_output, *self.out_spatial)

    @property
    def weight_shape(self) -> Ints:
        """Caffe's (n_output, C / group, kernel...)."""
        return (self.n_output, self.in_shape[1] // self.group, *self.kernel)

    @property
    def thinned(self) -> Thinned | None:
        """The places of its bottom that it reads, if it is pointwise, in images, and leaves out some: it is then that
        of ``on_thinned`` of these alone."""
        thins = self.is_pointwise and len(self.kernel) == 2 and max(self.stride) > 1
        return Thinned(self.in_shape, self.stride) if thins else None

    @property
    def on_thinned(self) -> ConvSpec:
        """The same convolution of a bottom that holds the places of ``thinned`` alone."""
        return replace(self, in_shape=(*self.in_shape[:2], *self.out_spatial), stride=(1,) * len(self.stride))

    @property
    def is_pointwise(self) -> bool:
        """Whether each output is a product of one pixel's channels with weights."""
        return max(self.kernel) == 1 and max(self.pad) == 0 and self.group == 1

    def check(self) -> None:
        """Raise LayerError if groups do not divide the channels, the output is empty, or an axis is too long."""
        if self.group < 1 or self.in_shape[1] % self.group or self.n_output % self.group:
            raise LayerError(f"group {self.group} does not divide {self.in_shape[1]} input channels and "
                             f"{self.n_output} outputs")
        if min(self.out_spatial, default=1) < 1:
            raise LayerError(f"kernel {self.kernel} does not fit into the bottom {self.in_shape} with pad {self.pad}")
        extents = tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        check_extents(self.in_shape[2:], self.pad, extents)


@dataclass(frozen=True)
class ConvPasses:
    """Which passes of a convolution will run: ``forward``, with a bias and a ReLU of that slope below 0 (None: no
    ReLU), and the gradients of its bottom and of its weights."""

    forward: bool = True
    bias: bool = False
    relu_slope: float | None = None
    by_data: bool = False
    by_weights: bool = False


@dataclass(frozen=True)
class PoolSpec:
    """Pooling of images, logical (N, C, H, W), by the method "MAX", "AVE" or "STOCHASTIC"; kernel, stride and pad are
    (height, width). ``ceil``: round output sizes up (Caffe's default) or down."""

    in_shape: Ints
    method: str
    kernel: Ints
    stride: Ints
    pad: Ints
    ceil: bool = True
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))

    @property
    def out_spatial(self) -> Ints:
        """Output size per axis; a last window that would start beyond the image, in the padding, is left out."""
        found = []
        for n, k, s, p in zip(self.in_shape[2:], self.kernel, self.stride, self.pad, strict=True):
            out = (-(-(n + 2 * p - k) // s) if self.ceil else (n + 2 * p - k) // s) + 1
            found.append(out - 1 if p and (out - 1) * s >= n + p else out)
        return tuple(found)

    @property
    def _axes(self) -> Iterator[Ints]:
        """Per axis the sizes of input and output, kernel, stride and pad."""
        return zip(self.in_shape[2:], self.out_spatial, self.kernel, self.stride, self.pad, strict=True)

    @property
    def out_shape(self) -> Ints:
        """Logical (N, C, H, W)."""
        return (*self.in_shape[:2], *self.out_spatial)

    @property
    def pad_end(self) -> Ints:
        """Padding at the bottom and right edges, per axis, that completes the last window; at least 0."""
        return tuple(max((o - 1) * s + k - n - p, 0) for n, o, k, s, p in self._axes)

    @property
    def windows_stay_inside(self) -> bool:
        """Whether no window reaches beyond the padding, so that AVE divides all sums by the kernel's area."""
        return all((o - 1) * s + k <= n + 2 * p for n, o, k, s, p in self._axes)

    def check(self) -> None:
        """Raise LayerError if the padding is as wide as the kernel, the output is empty, or the last window is empty,
        for which Caffe 1.0 gives -FLT_MAX or 0/0 and writes the gradient outside the blob."""
        if any(p >= k for p, k in zip(self.pad, self.kernel, strict=True)):
            raise LayerError(f"pad {self.pad} must be smaller than the kernel {self.kernel}")
        if min(self.out_spatial) < 1 or 0 in self.in_shape[2:]:
            raise LayerError(f"kernel {self.kernel} does not fit into the bottom {self.in_shape} with pad {self.pad}")
        check_extents(self.in_shape[2:], self.pad, self.kernel)
        if any((o - 1) * s >= n + p for n, o, _, s, p in self._axes):
            raise LayerError(f"stride {self.stride} puts the last window behind the end of the bottom {self.in_shape}; "
                             "round_mode: FLOOR leaves it out")


@dataclass(frozen=True)
class LrnSpec:
    """Local response normalisation of logical (N, C, H, W), y = x · (k + alpha / n · sum of squares)^-beta.

    The window is ``local_size``, odd, wide: across channels, where n is local_size, or spatial ``within`` one, where n
    is its square."""

    in_shape: Ints
    local_size: int
    alpha: float
    beta: float
    k: float
    within: bool = False
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))

    @property
    def n_window(self) -> int:
        """Elements of a whole window."""
        return self.local_size ** (2 if self.within else 1)

    @property
    def half(self) -> int:
        """How many elements a window reaches to either side, limited to the length of the axis."""
        longest = max(self.in_shape[2:]) if self.within else self.in_shape[1]
        return min((self.local_size - 1) // 2, max(longest - 1, 0))


@dataclass(frozen=True)
class LossSpec:
    """The multinomial logistic loss of softmax of scores (n_rows, n_classes): -log(softmax(row)[label]), summed over
    rows, those with the label ``ignored`` left out, and divided by ``divisor``; None: the number of rows not left out,
    at least 1."""

    n_rows: int
    n_classes: int
    ignored: int | None = None
    divisor: float | None = None
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))


@dataclass(frozen=True)
class Segment:
    """An interval of the flat parameter buffers, from ``start`` to before ``stop``, with its own factors on the
    learning rate and on the weight decay, of the parameter that begins at ``origin``. ``kernel_order`` is I and K of
    weights that are copied for kernels as (O, K, I); (1, 1): copied as they lie."""

    start: int
    stop: int
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    origin: int = 0
    kernel_order: tuple[int, int] = (1, 1)


def check_extents(spatial: Ints, pad: Ints, extents: Ints) -> None:
    """Raise LayerError if a padded axis, or a dilated window, has more than 2^31 - 1 elements."""
    for n, p, extent in zip(spatial, pad, extents, strict=True):
        if max(n + 2 * p, extent) > LONGEST:
            raise LayerError(f"a padded axis and a window have at most {LONGEST} places, got {n + 2 * p} and {extent}")


def strides_within(spec: ConvSpec | PoolSpec) -> Ints:
    """The strides, cut to the size of the padded image: the result is the same, and oneDNN's 32 bits suffice."""
    return tuple(min(s, n + 2 * p) for s, n, p in zip(spec.stride, spec.in_shape[2:], spec.pad, strict=True))


def storage_strides(shape: Ints) -> Ints:
    """Strides, in elements, of the logical axes (N, C, spatial...) of a blob stored channels-last."""
    n_channels, spatial = shape[1], shape[2:]
    inner = [n_channels * prod(spatial[i + 1:]) for i in range(len(spatial))]
    return (n_channels * prod(spatial), 1, *inner)


def plain_strides(shape: Ints) -> Ints:
    """Strides, in elements, of a C-contiguous array."""
    return tuple(prod(shape[i + 1:]) for i in range(len(shape)))


@dataclass(frozen=True)
class NormSpec:
    """A batch normalisation of logical (N, C, spatial...), mean and variance per channel; for half types the sums are
    float32. ``eps`` is added to the variance, whatever its value, as in Caffe 1.0; the running sums are multiplied by
    ``fraction`` before each batch is added (moving_average_fraction)."""

    in_shape: Ints
    eps: float
    fraction: float
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))

    @property
    def n_channels(self) -> int:
        """Columns of the matrix that is normalised."""
        return self.in_shape[1]

    @property
    def n_rows(self) -> int:
        """Rows of the matrix that is normalised: images times positions."""
        return self.in_shape[0] * prod(self.in_shape[2:])

    @property
    def correction(self) -> float:
        """Factor on a batch's variance before Caffe adds it to the running sum: m / (m - 1), m rows; 1 for one row."""
        return self.n_rows / (self.n_rows - 1) if self.n_rows > 1 else 1.0


@dataclass(frozen=True)
class NormPasses:
    """Which passes of a batch normalisation, with the batch's statistics and out of place, will run: forward, with the
    sum of another blob if ``adds`` and then a ReLU of that slope below 0 (None: no ReLU), and backward, through a ReLU
    of ``slope_back``."""

    forward: bool = False
    adds: bool = False
    relu_slope: float | None = None
    backward: bool = False
    slope_back: float | None = None


@dataclass(frozen=True)
class Fused:
    """The operations fused to a normalisation: y = relu(xn · scale + bias + addend), xn being the normalised x; scale
    and bias (C,), of the parameters' type, the ReLU's negative ``slope``, and, for forward only, addend (rows, C), of
    x's type, and ``signs``, bytes that get y's sign bits (``SigningPlan``). Each may be None."""

    scale: Any = None
    bias: Any = None
    slope: float | None = None
    addend: Any = None
    signs: Any = None


@dataclass(frozen=True)
class FusedDiffs:
    """The arrays (C,), of the parameters' type, that get the gradients of ``Fused``'s scale and bias (None: not
    wanted), written if ``overwrite``, else added."""

    scale: Any = None
    bias: Any = None
    overwrite: bool = False


NOT_FUSED, NO_DIFFS = Fused(), FusedDiffs()
