"""The contract of a layer, and what a net lends to its layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.fillers import fill
from scaffe.layers.base.random import Stream
from scaffe.layers.base.registry import Registry
from scaffe.layers.kernels.backend import Backend, Draws

TRAIN, TEST = 0, 1  # Caffe's Phase

layer_types: Registry[type[Layer]] = Registry("layer type", "scaffe.layers")


@dataclass
class Context:
    """What a net lends to its layers: the device's kernels, the random stream, the way to the data.

    Attributes:
        phase: TRAIN or TEST.
        kernels: the backend, ``scaffe.layers.kernels.cpu`` or ``cuda``.
        dtype: element type of blobs; parameters and their gradients have ``param_dtype``, at least float32.
        rng: Caffe's stream of draws, shared by the fillers and the layers of a process, in Caffe's order.
        open_feed: gives a data layer its batches; the trainer sets it (layers know no data sources).
    """

    phase: int
    kernels: Backend
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))
    rng: Stream = field(default_factory=lambda: Stream(0))
    open_feed: Callable[[Any, Context], Any] | None = None

    @property
    def xp(self) -> Any:
        """NumPy, or the module that stands in for it on the device."""
        return self.kernels.xp

    @cached_property
    def draws(self) -> Draws:
        """Where layers draw from while they run: the stream on the CPU, numbers seeded by it on a device."""
        return self.kernels.draws(self.rng)

    @property
    def param_dtype(self) -> np.dtype:
        """Element type of parameters: half precision trains float32 ones."""
        return np.promote_types(self.dtype, np.float32)

    def blob(self, shape: Sequence[int] = (0,), channels_last: bool | None = None,
             dtype: np.dtype | None = None) -> Blob:
        """A blob in the device's memory."""
        return Blob(shape, dtype or self.dtype, channels_last, self.kernels.zeros)


class Layer:
    """One layer of a net, in Caffe's meaning of the word.

    A subclass registers itself with ``@layer_types.register("Type")`` in its own file and fills in ``setup`` (once),
    ``reshape`` (whenever a bottom's shape changes), ``forward`` and ``backward``. Backward accumulates into the
    diffs of ``self.blobs`` and overwrites the diffs of bottoms whose ``propagate_down`` is set.

    Args:
        param: the LayerParameter message.
        context: what the net lends.
    """

    n_bottoms: ClassVar[tuple[int, int | None]] = (1, 1)  # least and most; None is no limit
    n_tops: ClassVar[tuple[int, int | None]] = (1, 1)
    equal_counts: ClassVar[bool] = False  # as many tops as bottoms
    default_loss_weight: ClassVar[float] = 0.0  # of top 0; 1.0 makes it a loss layer
    auto_tops: ClassVar[bool] = False  # tops not named in the prototxt are made anonymously (losses)
    reshape_always: ClassVar[bool] = False  # top shapes depend on values: reshape before every forward
    shares_data: bool = False  # tops' data may live in bottom 0's memory
    shares_diff: bool = False  # tops' diffs may live in bottom 0's memory
    recordable: ClassVar[bool] = False  # every pass queues the same work, and the host decides nothing by values
    fuses_backward: ClassVar[bool] = False  # backward of the layers fused to it runs in one pass too
    keeps_bottom: ClassVar[bool] = False  # backward needs the bottom's data, so that in place it keeps a copy
    forward_only: bool = False  # set by who never runs backward: nothing need be kept for it
    exact_bottoms: ClassVar[tuple[int, ...]] = ()  # bottoms of whole numbers: float32 in half precision too
    host_only: ClassVar[bool] = False  # beside a net on a device it runs on the host (user code, files, rare layers)

    def __init__(self, param: Any, context: Context) -> None:
        self.param, self.context = param, context
        self.blobs: list[Blob] = []
        self.param_propagate_down: list[bool] = []  # set by the net: which parameters need a gradient

    # -- for subclasses ------------------------------------------------------------------------------------
    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the parameters, declare blobs with ``add_blob``. Called once, after the count checks."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Shape the tops from the bottoms; build kernels' plans here, never in forward."""
        raise NotImplementedError

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Compute the tops' data."""
        raise NotImplementedError

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add to the parameters' diffs; write the diffs of the bottoms asked for."""
        raise NotImplementedError

    def allow_force_backward(self, bottom_index: int) -> bool:
        """Whether ``force_backward`` may ask for this bottom's gradient (labels say no)."""
        return True

    def fuse(self, following: Layer) -> bool:
        """Fuse the layer that follows this one and those fused so far, if its output can be computed in the same pass.

        Returns:
            whether it is fused from now on: ``forward_fused`` then computes its top.
        """
        return False

    def forward_fused(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Forward of this layer and those fused to it, in one pass."""
        raise NotImplementedError

    def backward_fused(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Backward of the layers fused to this one and of itself, in one pass; only where ``fuses_backward`` holds."""
        raise NotImplementedError

    def unfuse(self) -> None:
        """Write what the fused layers' own backward needs of the last fused forward; only where ``fuses_backward``."""

    # -- for all -------------------------------------------------------------------------------------------
    def add_blob(self, shape: Sequence[int], filler: Any) -> Blob:
        """Declare a learnable parameter, filled from ``context.rng`` by a FillerParameter message (None: zeros)."""
        blob = self.context.blob(shape, channels_last=False, dtype=self.context.param_dtype)
        if filler is not None:
            self.fill(blob, filler)
        self.blobs.append(blob)
        self.param_propagate_down.append(True)
        return blob

    def fill(self, blob: Blob, filler: Any) -> None:
        """Fill a blob's data by a FillerParameter message, with Caffe's draws, made on the host."""
        values = np.empty(blob.shape, np.promote_types(blob.dtype, np.float32))
        fill(values, filler, self.context.rng)
        blob.data[...] = self.context.kernels.to_device(values, blob.dtype)

    def check_values(self) -> None:
        """Raise LayerError for a mistake in the values since last time that forward could not see without waiting."""

    def check_counts(self, n_bottoms: int, n_tops: int) -> None:
        """Refuse a wrong number of bottoms or tops with LayerError."""
        for what, came, (least, most) in (("bottom", n_bottoms, self.n_bottoms), ("top", n_tops, self.n_tops)):
            if came < least or (most is not None and came > most):
                wanted = f"at least {least}" if most is None else str(least) if least == most else f"{least} to {most}"
                raise LayerError(f"takes {wanted} {what} blob(s), got {came}")
        if self.equal_counts and n_bottoms != n_tops:
            raise LayerError(f"takes as many tops as bottoms, got {n_bottoms} bottoms and {n_tops} tops")
