"""The interface of a layer."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, ClassVar

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.fillers import fill
from scaffe.layers.base.registry import Registry
from scaffe.layers.kernels.plans import InferencePlan, PreparedCalls

TRAIN, TEST = 0, 1  # Caffe's Phase

layer_types: Registry[type[Layer]] = Registry("layer type", "scaffe.layers", ("base", "kernels"))


class Layer:
    """One layer of a net, as in Caffe.

    A subclass registers itself with ``@layer_types.register("Type")`` in its own file and implements ``setup`` (called
    once), ``reshape`` (called whenever a bottom's shape changes), ``forward`` and ``backward``. Backward adds to the
    diffs of the parameters, ``self.blobs``, and overwrites the diffs of the bottoms whose ``propagate_down`` is true.

    Args:
        param: the LayerParameter message.
        context: the net's kernels, random stream and access to data.
    """

    n_bottoms: ClassVar[tuple[int, int | None]] = (1, 1)  # (fewest, most); None: no limit
    n_tops: ClassVar[tuple[int, int | None]] = (1, 1)
    equal_counts: ClassVar[bool] = False  # as many tops as bottoms
    default_loss_weight: ClassVar[float] = 0.0  # of top 0; 1.0 makes it a loss layer
    auto_tops: ClassVar[bool] = False  # tops not named in the prototxt are made anonymously (losses)
    reshape_always: ClassVar[bool] = False  # top shapes depend on values of bottoms: reshape before every forward
    shares_data: bool = False  # tops' data may share bottom 0's memory
    idle_in_place: bool = False  # forward does nothing if tops' data share bottom 0's memory
    shares_diff: bool = False  # tops' diffs may share bottom 0's memory
    passes_diff: bool = False  # bottoms' diffs equal top 0's, and may share its memory
    adds_in_place: bool = False  # backward may compute bottom 0's diff in top 0's memory
    by_image: bool = False  # in phase TEST, image i of the tops depends on image i of the bottoms alone
    filled_tops: Sequence[int] = ()  # of a layer without bottoms: tops that forward writes whole, and nobody else
    recordable: ClassVar[bool] = False  # a pass launches the same work whatever the values: a CUDA graph can replay it
    repeatable: bool = False  # ``forward_again`` computes the same tops, and changes nothing else
    reads_bottoms: bool = True  # backward reads the bottoms' data
    reads_tops: bool = True  # backward reads the tops' data
    writes_params: bool = False  # forward may write the layer's parameters, as batch statistics are
    divides: bool = False  # backward can run as ``backward_params``, then ``backward_bottoms``
    n_fused_back: int = 0  # how many of the layers fused to it ``backward_fused`` covers; the others run their own
    temporaries: float = 0  # size of the temporary arrays of a pass, in multiples of the layer's largest blob
    persistent_temporaries: float = 0  # size of those of them that persist between passes
    keeps_bottom: ClassVar[bool] = False  # backward needs the bottom's data: in place, the layer keeps a copy
    forward_only: bool = False  # set by a caller that never runs backward: nothing is kept for it
    exact_bottoms: ClassVar[tuple[int, ...]] = ()  # bottoms of integers (labels): float32 even in half precision
    exact_tops: ClassVar[tuple[int, ...]] = ()  # tops that are results, such as an accuracy: float32 likewise
    integer_tops: ClassVar[tuple[int, ...]] = ()  # tops of indices: float32 if the layers that read them allow it
    gradient_bottoms: ClassVar[Container[int]] = range(1 << 31)  # with ``force_backward`` these get one; labels do not
    has_half_kernels: ClassVar[bool] = False  # the CPU has bfloat16 kernels for all of the layer
    host_only: ClassVar[bool] = False  # runs on the host even in a net on a device (user code, files, rare layers)

    @classmethod
    def form(cls, param: Any, bottom: Sequence[Blob]) -> type[Layer]:
        """The class for these bottoms: this one, unless the type has another for bottoms of their shapes."""
        return cls

    def __init__(self, param: Any, context: Context) -> None:
        self.param, self.context = param, context
        self.blobs: list[Blob] = []
        self.param_propagate_down: list[bool] = []  # set by the net: which parameters need a gradient
        self.bottoms_written: Callable[[], None] = lambda: None  # see ``backward``

    # -- for subclasses ------------------------------------------------------------------------------------
    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read ``self.param`` and declare parameters with ``add_blob``. Called once, after ``check_counts``. Raises
        LayerError if an option is missing or out of range, or does not fit the others or the bottoms."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Set the tops' shapes from the bottoms'. Kernel plans are built here, never in ``forward``. Raises LayerError
        if the bottoms' shapes do not fit one another, the options or the parameters."""
        raise NotImplementedError

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the tops' data. Raises LayerError for a label, an index or a region that is out of range."""
        raise NotImplementedError

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add to the parameters' diffs, and overwrite the diffs of the bottoms for which ``propagate_down`` is true,
        from the tops' diffs, the gradients of the loss.

        A layer with large parameters overwrites the bottoms' diffs first and then calls ``bottoms_written``, so that
        they can be sent while it computes the parameters' diffs."""
        raise NotImplementedError

    def backward_params(self, top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        """The part of backward that reads the bottoms' data: add to the parameters' diffs. Needs ``divides``."""
        raise NotImplementedError

    def backward_bottoms(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """The rest of backward: overwrite the bottoms' diffs. Needs ``divides`` or ``param_rows``."""
        raise NotImplementedError

    @property
    def param_rows(self) -> Sequence[slice]:
        """Blocks of the first parameter's rows, if backward can run as ``backward_bottoms`` and then ``backward_rows``
        for each block; else empty."""
        return ()

    def backward_rows(self, rows: slice, diffs: Sequence[Any], top: Sequence[Blob], bottom: Sequence[Blob]) -> None:
        """Write the parameters' gradients for one block of ``param_rows``, all of them in order, after
        ``backward_bottoms``: to a flat array for these rows; with the last block also to one for each of the other
        parameters."""
        raise NotImplementedError

    def forward_again(self, bottom: Sequence[Blob], top: Sequence[Blob], fused: bool) -> None:
        """Recompute the tops' data of the last ``forward``, or ``forward_fused`` if ``fused``, from the same bottoms.
        Needs ``repeatable``. Random choices are those of that forward, and running statistics do not count the batch
        twice."""
        (self.forward_fused if fused else self.forward)(bottom, top)

    @classmethod
    def takes_half(cls, param: Any, bottom: Sequence[Blob]) -> bool:
        """Whether the CPU has bfloat16 kernels for a layer of that LayerParameter message and those bottoms; if not, a
        bfloat16 net runs it in float32."""
        return cls.has_half_kernels

    def allow_force_backward(self, bottom_index: int) -> bool:
        """Whether a net with ``force_backward`` computes this bottom's gradient."""
        return bottom_index in self.gradient_bottoms

    def fuse(self, following: Layer) -> bool:
        """Fuse the layer after this one and after those already fused to it, if both can be computed in one pass.
        Returns whether it is fused: ``forward_fused`` then computes its top."""
        return False

    def forward_fused(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Forward of this layer and those fused to it, in one pass, from this layer's bottoms, then those that fused
        layers (a sum) have from other layers, to the last fused layer's tops."""
        raise NotImplementedError

    def keep(self, top: Sequence[Blob]) -> None:
        """Keep what backward needs of the tops' data, right after a pass in which this layer ran fused to another."""

    def backward_fused(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Backward of the first ``n_fused_back`` fused layers and of this one, in one pass."""
        raise NotImplementedError

    # -- for inference -------------------------------------------------------------------------------------
    def per_channel(self) -> tuple[Any, Any] | None:
        """(scale, shift), each (C,) or None for 1 or 0, if forward computes only y = x · scale + shift; else None."""
        return None

    def inference_plan(self, bottom: Blob, top: Blob, relu_slope: float | None, adds: bool) -> InferencePlan | None:
        """A plan of this layer's forward on its only bottom and top, shaped, into whose weights per-channel factors and
        shifts can be folded; with the sum of another blob of the top's shape, if it ``adds`` one, and then a ReLU of
        that slope below 0 (None: no ReLU). None if there is no such plan, or none that is faster."""
        return None

    def prepare_calls(self, bottom: Sequence[Blob], top: Sequence[Blob], fused: bool) -> PreparedCalls | None:
        """Prepare native calls that do what ``forward``, or ``forward_fused`` if ``fused``, does on these blobs as long
        as they keep their memory; None if the layer needs the interpreter."""
        return None

    def include_relu(self, own_diffs: bool) -> bool:
        """Include the backward of the in-place ReLU of slope 0 before this layer in this layer's from now on; returns
        whether it does. ``own_diffs``: backward may overwrite the tops' diffs, since nobody reads them afterwards."""
        return False

    def unfuse(self) -> None:
        """After a fused forward, write what each fused layer needs to run its own backward. Needs ``n_fused_back``."""

    # -- for all -------------------------------------------------------------------------------------------
    def add_blob(self, shape: Sequence[int], filler: Any) -> Blob:
        """Declare a learnable parameter of Caffe's shape and ``context.param_dtype``, appended to ``self.blobs``, with
        initial values by a FillerParameter message, drawn from ``context.rng``; None: zeros."""
        blob = self.context.parameter(shape)
        if filler is not None and self.context.fills:
            self.fill(blob, filler)
        self.blobs.append(blob)
        self.param_propagate_down.append(True)
        return blob

    def fill(self, blob: Blob, filler: Any) -> None:
        """Fill a blob's data as a FillerParameter message says. Random numbers are drawn on the host."""
        data = self.context.kernels.to_host(blob.data)
        values = data.astype(np.promote_types(blob.dtype, np.float32), copy=False)
        fill(values, filler, self.context.rng)
        if values is not blob.data:
            self.put(blob, values)

    def put(self, blob: Blob, values: np.ndarray) -> None:
        """Write values (host memory, of the parameter's shape) to the parameter, on the host or on a device."""
        is_there = isinstance(blob.data, np.ndarray)
        blob.data[...] = values if is_there else self.context.kernels.to_device(values, blob.dtype)

    def check_values(self) -> None:
        """Raise LayerError for a bad value that a device's kernels have met since the last call, as forward does not
        wait for them."""

    def check_counts(self, n_bottoms: int, n_tops: int) -> None:
        """Raise LayerError for a wrong number of bottoms or tops."""
        for what, came, (least, most) in (("bottom", n_bottoms, self.n_bottoms), ("top", n_tops, self.n_tops)):
            if came < least or (most is not None and came > most):
                wanted = f"at least {least}" if most is None else str(least) if least == most else f"{least} to {most}"
                raise LayerError(f"takes {wanted} {what} blob(s), got {came}")
        if self.equal_counts and n_bottoms != n_tops:
            raise LayerError(f"takes as many tops as bottoms, got {n_bottoms} bottoms and {n_tops} tops")
