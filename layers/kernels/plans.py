"""The interfaces of plans. A plan holds the kernels of one geometry; ``reshape`` of a layer builds it, passes run it.

Arrays are the backend's (NumPy's or CuPy's), contiguous, of the plan's dtype; images are channels-last. Shapes below
say how the elements are ordered; an array may have any shape with as many elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from scaffe.layers.kernels.specs import Fused, FusedDiffs, Thinned

Array = Any  # of the backend


class WeightedPlan(Protocol):
    """A convolution, deconvolution or inner product: y = x * w + b, where ``*`` is the layer's product."""

    def forward(self, x: Array, w: Array, b: Array | None, y: Array, relu_slope: float | None = None) -> None:
        """Write the top y (rows, n_output) for the bottom x (rows, channels), a row being an input of an inner product,
        or a pixel; weights w in Caffe's order, or of a half type in the kernels', (O, K..., I); a bias b (n_output,) or
        None; then a ReLU of that slope below 0 in the same pass, unless that is None."""

    def backward_data(self, gy: Array, w: Array, gx: Array) -> None:
        """Write the bottom's gradient gx, from the top's gradient gy and the weights w."""

    def backward_weights(self, x: Array, gy: Array, gw: Array, gb: Array | None, overwrite: bool = False) -> None:
        """Add to gw, in Caffe's order, the gradient of the weights, and to gb (n_output,) that of the bias unless it is
        None, for the bottom x and the top's gradient gy; or write both if ``overwrite``."""


@runtime_checkable
class SummingPlan(Protocol):
    """A convolution that can add other gradients of its bottom to its own."""

    def backward_data_sum(self, gy: Array, w: Array, gx: Array, addends: Sequence[Array],
                          signs: Array | None = None) -> None:
        """As ``WeightedPlan.backward_data``, with ``addends``, arrays of gx's length, added; 0 where ``signs``, if
        given, are not above 0: an array of gx's type, or sign bits. gx is none of them. There is an addend, or
        signs."""

    def add_thinned(self, gx: Array, addend: Array, thinned: Thinned, signs: Array | None = None) -> None:
        """gx += addend, which holds the places that count alone, where ``signs``, as above, are above 0."""

    def keep_places(self, x: Array, thinned: Thinned) -> Array:
        """The places of ``signs``, as above, that count, as a new array; sign bits of a place fill some elements."""

    def prepare_sum(self, n_addends: int, masks: bool) -> None:
        """Build what ``backward_data_sum`` runs for so many addends, with signs or without."""

    def takes_sign_bits(self, n_addends: int) -> bool:
        """Whether ``signs`` may be sign bits beside so many addends, and that is no slower."""


@runtime_checkable
class RowwisePlan(Protocol):
    """An inner product whose weights' gradient can be computed in blocks of their ``rows``, in order, with the same
    bits as all at once; small weights have none."""

    rows: Sequence[slice]

    def backward_rows(self, x: Array, gy: Array, rows: slice, gw: Array) -> None:
        """Write the gradient of one of these blocks to gw (its rows, K); x and gy as for ``backward_weights``."""

    def backward_bias(self, gy: Array, gb: Array) -> None:
        """Write the gradient of the bias (n_output,)."""


class InferencePlan(Protocol):
    """A convolution's forward for weights that stay the same over many calls, with a sum and a ReLU in its pass."""

    def set_weights(self, w: Array, b: Array) -> None:
        """Copy weights and bias, in Caffe's order; ``forward`` uses them until the next ``set_weights``."""

    def share_weights(self, other: Any) -> None:
        """Share the memory into which another plan of the same geometry takes weights and bias."""

    def forward(self, x: Array, y: Array, added: Array | None = None) -> None:
        """y = x * w + b, plus ``added`` if the plan adds, then the ReLU if it has one. ``added`` may be y."""

    def prepare_calls(self, x: Array, y: Array, added: Array | None = None) -> PreparedCalls | None:
        """Prepare ``forward`` on these arrays, which keep their memory; None if native code cannot run it."""


class PreparedCalls(Protocol):
    """Native calls with fixed arguments that run one after another without the interpreter."""

    def __add__(self, other: Any) -> Any:
        """These calls followed by the others."""

    def __len__(self) -> int:
        """The number of calls."""

    def is_valid(self) -> bool:
        """Whether they may run now: the thread and the number of threads are those for which they were prepared."""

    def run(self) -> int:
        """Run the calls until one fails. Returns how many succeeded."""

    def raise_error(self) -> None:
        """Raise the error of the call that failed in the last run: LayerError or MemoryError."""


@runtime_checkable
class Preparable(Protocol):
    """A plan whose ``forward`` can be prepared for arrays that keep their memory."""

    def prepare_calls(self, *arrays: Array) -> PreparedCalls | None:
        """Prepare ``forward`` on these arrays, which must stay alive; None if native code cannot run it."""


def prepared(plan: Any, *arrays: Array) -> PreparedCalls | None:
    """The prepared calls of a plan's ``forward``; None if the plan has none."""
    return plan.prepare_calls(*arrays) if isinstance(plan, Preparable) else None


class PoolingPlan(Protocol):
    """MAX or AVE pooling of images."""

    def forward(self, x: Array, y: Array, mask: Array | None = None) -> None:
        """Pool x into y. ``mask``, like y, gets the index row * width + column of each maximum (Caffe's second top)."""

    def backward(self, gy: Array, gx: Array) -> None:
        """Write the bottom's gradient gx; for MAX, at the elements that the last forward chose."""


@runtime_checkable
class ReluPoolingPlan(Protocol):
    """MAX pooling whose backward can include that of a ReLU before it."""

    def include_relu(self) -> None:
        """From the next forward on, choose no element in windows whose maximum is not above 0."""


@runtime_checkable
class AveragingPlan(Protocol):
    """AVE pooling whose backward can include that of a ReLU before it."""

    def backward_average(self, gy: Array, gx: Array, signs: Array | None = None) -> None:
        """As ``PoolingPlan.backward``; 0 where ``signs``, of gx's length, if given, are not above 0."""


class StochasticPoolingPlan(Protocol):
    """STOCHASTIC pooling of images (Zeiler and Fergus, "Stochastic Pooling", ICLR 2013, section 3)."""

    def forward_stochastic(self, x: Array, y: Array, draws: Array | None) -> None:
        """Choose one element of each window of x, with probability proportional to its value, by draws, floats in [0,
        1), one for each output, in storage order. None (test phase): y is the mean of the window weighted with these
        probabilities."""

    def backward(self, gy: Array, gx: Array) -> None:
        """Write the bottom's gradient gx, at the elements that the last forward chose."""


class LrnPlan(Protocol):
    """Local response normalisation, whose backward reads y if ``reads_y``."""

    reads_y: bool

    def forward(self, x: Array, y: Array) -> None:
        """Write y."""

    def backward(self, x: Array, y: Array, gy: Array, gx: Array) -> None:
        """Write the bottom's gradient gx, from x, y, gy and what the last forward kept."""


class BatchNormPlan(Protocol):
    """Batch normalisation of a matrix (rows, channels), with fused scale, bias and ReLU."""

    def forward_train(self, x: Array, y: Array, sums: Sequence[Array], fused: Fused = ...,
                      kept: Array | None = None) -> None:
        """Write y (rows, channels), normalised with the mean and variance of x, which it may be, with scale, bias and
        ReLU fused; and update the running sums (Caffe's three blobs): of means (C,) and of corrected variances (C,),
        and the number (1,) to divide both by. If y is x, ``kept`` gets a copy for backward."""

    def forward_fixed(self, x: Array, y: Array, sums: Sequence[Array], fused: Fused = ...,
                      kept: Array | None = None) -> None:
        """Write y, normalised with the running sums; arguments as for ``forward_train``."""

    def normalized(self, x: Array, xn: Array) -> None:
        """Write x to xn, normalised as in the last forward, without scale, bias and ReLU."""

    def backward(self, x: Array, gy: Array, gx: Array | None, fused: Fused = ..., diffs: FusedDiffs = ...) -> None:
        """Write the gradients of x to gx, which may be gy or None (not wanted), and of scale, sum(g xn), and bias,
        sum(g), to ``diffs``; x and ``fused`` are those of the last forward.

        With g the gradient before the ReLU: gx = (g - mean(g) - xn mean(g xn)) · scale / sqrt(variance + eps), or g ·
        scale / sqrt(variance + eps) if the last forward used the running sums."""


@runtime_checkable
class SigningPlan(Protocol):
    """A batch normalisation that can write a sign bit of each element, 1 above 0, beside its result: eight a byte, the
    lowest first, in the order of the elements."""

    wrote_signs: bool  # whether the last forward has written ``Fused.signs``

    def can_write_signs(self, slope: float | None, adds: bool) -> bool:
        """Whether ``forward_train``, with the sum of an addend or without and a ReLU of that slope, can."""


@runtime_checkable
class ThinningPlan(Protocol):
    """A batch normalisation whose backward reads gradients that are 0 but at some places."""

    def backward_thinned(self, x: Array, gy: Array, gx: Array | None, thinned: Thinned, fused: Fused = ...,
                         diffs: FusedDiffs = ...) -> None:
        """As ``BatchNormPlan.backward`` after ``forward_train``; gy holds the places that count alone."""


class SoftmaxLossPlan(Protocol):
    """The multinomial logistic loss of softmax."""

    def forward(self, x: Array, labels: Array, prob: Array, loss: Array) -> None:
        """Write probabilities (rows, classes) and the loss (1,) of scores x (rows, classes) and integer labels
        (rows,)."""

    def backward(self, prob: Array, labels: Array, weight: Array, gx: Array) -> None:
        """Write gx = (prob - onehot(label)) · weight (1,) / divisor; 0 in rows whose label is ignored."""

    def check(self) -> None:
        """Raise LayerError if a label since the last check was out of range and forward has not raised for it."""


class DropoutPlan(Protocol):
    """Dropout."""

    def forward(self, x: Array, y: Array) -> None:
        """Draw a mask; write y = x / (1 - ratio) where an element is kept, else 0. y may be x."""

    def backward(self, gy: Array, gx: Array) -> None:
        """Write gx = gy / (1 - ratio) where the last forward kept an element, else 0. gx may be gy."""


class UniformPlan(Protocol):
    """Random numbers."""

    def next(self) -> Array:
        """New numbers in [0, 1), one for each element: flat, in storage order, valid until the next call."""


class UpdatePlan(Protocol):
    """An update rule over segments of the flat parameter buffers."""

    def run(self, w: Array, g: Array, histories: Sequence[Array], hyper: Any, factor: Any = 1.0) -> None:
        """Update the segments of w and of the histories, all flat, of equal length and dtype, with g · factor as the
        gradient. ``hyper`` is the rule's numbers for this iteration (``scaffe.training.update_rules.Hyper``); factor is
        a number, or what ``clip_factor`` or ``Guard.checked`` returned."""


class Workers(Protocol):
    """Threads, ``n_threads`` of them, that run independent work in parallel."""

    n_threads: int

    def run(self, work: Callable[[], None]) -> None:
        """Call ``work()`` ``n_threads`` times, on any of the threads, and wait for all. Raises an error of one of
        them."""


def find_kernel(package: str, name: str, plans: Mapping[str, tuple[str, str]], modules: Sequence[str]) -> Any:
    """A function of the backend ``package``, whose module is imported at its first use: of ``plans``, which has the
    module and name of those that are classes, else of the first of ``modules`` that has it. Raises AttributeError if
    none has."""
    module, attribute = plans.get(name, ("", name))
    for each in (module,) if module else modules:
        found = getattr(import_module(f"{package}.{each}"), attribute, None)
        if found is not None:
            return found
    raise AttributeError(name)
