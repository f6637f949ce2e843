"""The context that a net gives to its layers: kernels, random numbers, access to data, memory for parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels.backend import Backend, Draws


class ParamMemory(Protocol):
    """Memory, such as a file, in which parameters are allocated one after another; they need not fit in RAM together.
    If they do not ``stay`` there, they are moved to the backend's memory before passes run."""

    stays: ClassVar[bool]

    def zeros(self, n_elems: int, dtype: np.dtype) -> np.ndarray:
        """Allocate zeros (n_elems,) after the previous array."""

    def flat(self, pieces: Sequence[np.ndarray], starts: Sequence[int], n_elems: int, dtype: np.dtype) -> np.ndarray:
        """One array (n_elems,) in which piece i starts at element ``starts[i]``: the pieces' own memory if they already
        lie so, else new memory."""

    def is_same(self, one: np.ndarray, other: np.ndarray) -> bool:
        """Whether two arrays allocated here are the same memory."""


@dataclass
class Context:
    """What a net gives to its layers: the kernels of its device, the random stream, the access to data.

    Attributes:
        phase: TRAIN or TEST.
        kernels: the backend, ``scaffe.layers.kernels.cpu`` or ``cuda``.
        dtype: element type of blobs; parameters and their gradients have ``param_dtype``, at least float32.
        rng: the process's random stream. Fillers and layers all draw from it, in the same order as in Caffe.
        open_feed: opens the batches of a data layer, (param, context) → feed. The trainer sets it, since layers do
            not depend on data sources.
        n_ranks: ranks that share the data; each sees a part of it.
        shard: (part, number of parts) of the data that this net reads; None if the data are not divided.
        fills: whether parameters get their initial values; false for a net that is built for its shapes alone, whose
            parameters then take no memory.
        param_memory: where parameters are allocated; None: in the backend's memory.
    """

    phase: int
    kernels: Backend
    dtype: np.dtype = field(default_factory=lambda: np.dtype(np.float32))
    rng: Stream = field(default_factory=lambda: Stream(0))
    open_feed: Callable[[Any, Context], Any] | None = None
    n_ranks: int = 1
    shard: tuple[int, int] | None = None
    fills: bool = True
    param_memory: ParamMemory | None = None

    @property
    def xp(self) -> Any:
        """The array module of the backend: NumPy, or its counterpart on the device (CuPy)."""
        return self.kernels.xp

    @cached_property
    def draws(self) -> Draws:
        """Random numbers of layers in forward: ``rng`` itself on the CPU; on a device a generator seeded from it."""
        return self.kernels.draws(self.rng)

    @property
    def param_dtype(self) -> np.dtype:
        """Element type of parameters: ``dtype``, but float32 if that is a half type."""
        return np.promote_types(self.dtype, np.float32)

    def blob(self, shape: Sequence[int] = (0,), channels_last: bool | None = None,
             dtype: np.dtype | None = None) -> Blob:
        """A new blob in the backend's memory; arguments as for ``Blob``, with ``self.dtype`` if no dtype is given."""
        return Blob(shape, dtype or self.dtype, channels_last, self.kernels.zeros)

    def parameter(self, shape: Sequence[int]) -> Blob:
        """A new blob of ``param_dtype`` for a learnable parameter, zero."""
        blob = self.blob(shape, channels_last=False, dtype=self.param_dtype)
        if self.param_memory is not None:  # now, so that parameters lie there in their order
            blob.bind_data(self.param_memory.zeros(blob.n_elems, blob.dtype))
        return blob
