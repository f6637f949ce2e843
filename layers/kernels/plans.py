"""What the kernels of one geometry offer: a plan is built once, in a layer's ``reshape``, and run again and again.

Arrays are the backend's own (NumPy's or CuPy's), contiguous, of the plan's dtype, images channels-last. A shape given
below says how the elements are read: any shape of as many elements will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from scaffe.layers.kernels.norms import Fused, FusedDiffs

Array = Any  # of the backend


class WeightedPlan(Protocol):
    """Convolution, deconvolution or inner product: y = x * w + b."""

    def forward(self, x: Array, w: Array, b: Array | None, y: Array, relu_slope: float | None = None) -> None:
        """Write y.

        Args:
            x: the bottom, as rows (rows, channels).
            w: the weights, in Caffe's order.
            b: the bias (n_output,); None is none.
            y: the top (rows, n_output); overwritten.
            relu_slope: below 0, of a ReLU that follows in the same pass; None is no ReLU.
        """

    def backward_data(self, gy: Array, w: Array, gx: Array) -> None:
        """Write the bottom's gradient gx."""

    def backward_weights(self, x: Array, gy: Array, gw: Array, gb: Array | None, overwrite: bool = False) -> None:
        """Add the gradients of weights and bias to gw and gb (None: not wanted), or write them with ``overwrite``."""


class PoolingPlan(Protocol):
    """MAX or AVE pooling of images."""

    def forward(self, x: Array, y: Array, mask: Array | None = None) -> None:
        """Pool x into y. ``mask`` takes the places of maxima, row * width + column, as Caffe's second top has them."""

    def backward(self, gy: Array, gx: Array) -> None:
        """Write the bottom's gradient gx, by the places that the last forward took."""


class StochasticPoolingPlan(Protocol):
    """STOCHASTIC pooling of images (Zeiler and Fergus, "Stochastic Pooling", ICLR 2013, section 3)."""

    def forward_stochastic(self, x: Array, y: Array, draws: Array | None) -> None:
        """Take an element of each window with probability in proportion to it.

        Args:
            x, y: bottom and top.
            draws: float numbers in [0, 1), one an output, in storage order; None: the mean weighted so, for testing.
        """

    def backward(self, gy: Array, gx: Array) -> None:
        """Write the bottom's gradient gx, by the elements that the last forward drew."""


class LrnPlan(Protocol):
    """Local response normalisation."""

    def forward(self, x: Array, y: Array) -> None:
        """Write y."""

    def backward(self, x: Array, y: Array, gy: Array, gx: Array) -> None:
        """Write the bottom's gradient gx, by what the last forward kept."""


class BatchNormPlan(Protocol):
    """Batch normalisation of rows (rows, channels), and the scale, bias and ReLU fused to it."""

    def forward_train(self, x: Array, y: Array, sums: Sequence[Array], fused: Fused = ...,
                      kept: Array | None = None) -> None:
        """Write y by the mean and variance of x; bring the running sums up to date.

        Args:
            x, y: (rows, channels); y may be x.
            sums: of means (C,), of corrected variances (C,), and the factor that both are divided by (1,).
            fused: what is computed in the same pass.
            kept: takes a copy of x, where y is x and backward will need it.
        """

    def forward_fixed(self, x: Array, y: Array, sums: Sequence[Array], fused: Fused = ...,
                      kept: Array | None = None) -> None:
        """Write y by the running sums; arguments as for ``forward_train``."""

    def normalized(self, x: Array, xn: Array) -> None:
        """Write x normalised as in the last forward, without what was fused to it."""

    def backward(self, x: Array, gy: Array, gx: Array | None, fused: Fused = ..., diffs: FusedDiffs = ...) -> None:
        """Write the gradient gx, which may be gy, or None where nobody wants it.

        Args:
            x: what the last forward got.
            gy: the gradient of y.
            fused: as in the last forward.
            diffs: where to leave the gradients of scale and bias.
        """


class SoftmaxLossPlan(Protocol):
    """The logistic loss of softmax."""

    def forward(self, x: Array, labels: Array, prob: Array, loss: Array) -> None:
        """Write the probabilities (rows, classes) and the loss (1,) of scores x (rows, classes) and labels (rows,)."""

    def backward(self, prob: Array, labels: Array, weight: Array, gx: Array) -> None:
        """Write gx = (prob - 1 at the label) · weight (1,) / divisor; 0 in rows that do not count."""

    def check(self) -> None:
        """Raise LayerError for a label since the last check that is no class, where forward could not tell."""


class DropoutPlan(Protocol):
    """Dropout."""

    def forward(self, x: Array, y: Array) -> None:
        """Draw a mask, write y = x / (1 - ratio) where it keeps, else 0. y may be x."""

    def backward(self, gy: Array, gx: Array) -> None:
        """Write gx by the same mask. gx may be gy."""


class UniformPlan(Protocol):
    """Random numbers."""

    def next(self) -> Array:
        """Numbers in [0, 1), one an element, as one row in storage order; good until the next call."""


class UpdatePlan(Protocol):
    """An update rule over segments of the flat parameter buffers."""

    def run(self, w: Array, g: Array, histories: Sequence[Array], hyper: Any, factor: Any = 1.0) -> None:
        """Update the segments of w and of the histories by g · factor.

        Args:
            w, g, histories: flat buffers of one length and dtype.
            hyper: the rule's numbers for this iteration (``scaffe.training.update_rules.Hyper``).
            factor: a number, or what the backend's ``clip_factor`` gave.
        """
