"""All learnable parameters of a net in one flat buffer, in pieces if some move, all their gradients in another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob, KernelCopy
from scaffe.layers.base.context import ParamMemory
from scaffe.layers.kernels import device
from scaffe.layers.kernels.backend import DeviceBackend
from scaffe.mapped_memory import address, forget, in_pages

ALIGN_ELEMS = 16  # every parameter starts on a cache line of float32; the gaps stay zero
Allocate = Callable[[int, np.dtype], np.ndarray]


@dataclass(frozen=True)
class Param:
    """One learnable blob: the layer that owns it, its multipliers, and the blobs that share its memory. ``sharers``:
    blobs of other layers that use the same memory (Caffe's ``param { name }``)."""

    layer_index: int
    blob: Blob
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    sharers: tuple[Blob, ...] = ()


def offsets(lengths: list[int], align_elems: int = ALIGN_ELEMS) -> tuple[list[int], int]:
    """Place intervals of these lengths one after another, each aligned. Returns the start of each interval, and the end
    of the last with its padding, in elements."""
    *starts, end = accumulate((-(-n_elems // align_elems) * align_elems for n_elems in lengths), initial=0)
    return starts, end


class FlatParams:
    """The two flat buffers of a net, parameters and gradients; every learnable blob becomes a view of them.

    Args:
        zeros: allocates memory of the backend: (n_elems, dtype) → flat array of zeros.
        memory: where the parameters were made; None: memory of ``zeros``.

    Attributes:
        data, diff: the flat buffers, (n_elems,), of parameters and gradients; after ``divide``, ``Pieces``.
        slices: each parameter's interval of the buffers, in elements.
        n_elems: length of each buffer, padding included.
        fetch_all: fetches all parameters into memory where a memory plan has offloaded some; call it before reading
            them outside of the passes.
        waits_on_host: whether they were made in host memory, until ``move`` or ``divide``.
        copies: copies of the parameters for kernels of a half type, (n_elems,); None if there are none.
    """

    copies: np.ndarray | None = None

    def __init__(self, params: list[Param], dtype: np.dtype, zeros: Allocate = np.zeros,
                 memory: ParamMemory | None = None) -> None:
        self.params, self.zeros = params, in_pages if memory is not None and memory.stays else zeros
        self.waits_on_host = memory is not None and not memory.stays
        self.fetch_all: Callable[[], None] = lambda: None
        starts, self.n_elems = offsets([p.blob.n_elems for p in params])
        self.slices = [slice(s, s + p.blob.n_elems) for s, p in zip(starts, params, strict=False)]
        self.dtype = np.dtype(dtype)
        self._layers: dict[int, list[Param]] = {}
        for param in params:
            self._layers.setdefault(param.layer_index, []).append(param)
        if memory is None:
            self.move(zeros)
        else:
            flat = memory.flat([p.blob.data_flat for p in params], starts, self.n_elems, self.dtype)
            self._bind_data(flat, memory.is_same)
            self.bind_diff(in_pages(self.n_elems, self.dtype))

    def move(self, allocate: Allocate) -> None:
        """Allocate new flat buffers and copy the parameters there. The gradients' old memory is freed before, and that
        of the parameters as soon as they are copied. ``allocate``: (n_elems, dtype) → flat array of zeros. The trainer
        passes the communicator's ``alloc``, so that ranks of one node can sum each other's gradients."""
        self.bind_diff(None)
        for name in ("data", "diff"):
            self.move_one(name, allocate)

    def move_one(self, name: str, allocate: Allocate) -> None:
        """As ``move``, for one of the buffers, "data" or "diff"."""
        memory = allocate(self.n_elems, self.dtype)
        if name == "data":
            self._bind_data(memory)
        else:
            self.bind_diff(memory)

    def _bind_data(self, data: np.ndarray, is_same: Callable[[np.ndarray, np.ndarray], bool] | None = None) -> None:
        self.trust_copies(False)
        is_same = is_same or _is_same
        for param, place in zip(self.params, self.slices, strict=True):
            old = param.blob.data_flat
            if not is_same(old, data[place]):
                copy_into(data[place], old)
                forget(old)
            for blob in (param.blob, *param.sharers):
                blob.bind_data(data[place])
        self.data, self.waits_on_host = data, self.waits_on_host and type(data) is np.ndarray

    def bind_diff(self, diff: np.ndarray | None) -> None:
        """Use these gradients; None: they have no memory until the next call."""
        for param, place in zip(self.params, self.slices, strict=True):
            for blob in (param.blob, *param.sharers):
                blob.bind_diff(None if diff is None else diff[place])
        if diff is None:
            vars(self).pop("diff", None)
        else:
            self.diff = diff

    def divide(self, name: str, moved: Sequence[slice], allocate: Callable[[int], Any]) -> None:
        """Divide a buffer: some intervals get memory by ``put``, the rest gets new memory. An interval without memory
        must not be read.

        Args:
            moved: the intervals for ``put``, ascending; together they consist of whole parameters, not shared ones.
            allocate: n_elems → a flat array.
        """
        pieces = Pieces(getattr(self, name), moved, allocate)
        setattr(self, name, pieces)
        self.waits_on_host = self.waits_on_host and name != "data"
        for param, place in zip(self.params, self.slices, strict=True):
            apart = any(other.start <= place.start < other.stop for other in moved)
            for blob in (param.blob, *param.sharers):
                _bind(blob, name, None if apart else pieces[place])

    def put(self, name: str, place: slice, memory: Any) -> None:
        self.put_elements(name, place, memory)
        for param, own in zip(self.params, self.slices, strict=True):
            if place.start <= own.start < place.stop:
                _bind(param.blob, name, getattr(self, name)[own])

    def put_elements(self, name: str, place: slice, memory: Any) -> None:
        """As ``put``, for an interval that ends within a parameter, whose blob then has no memory."""
        getattr(self, name).put(place, memory[:(place.stop - place.start) * self.dtype.itemsize].view(self.dtype))

    @property
    def places(self) -> Sequence[slice]:
        return self.data.places if isinstance(self.data, Pieces) else [slice(None)]

    def whole(self, to_host: Callable[[Any], np.ndarray]) -> np.ndarray:
        return self.data.whole(to_host) if isinstance(self.data, Pieces) else self.data

    def copy_for_kernels(self, kernels: DeviceBackend, dtype: np.dtype) -> None:
        """Keep copies of the weights in a half type and the kernels' order, so that an update may write both."""
        self.copies = self.zeros(self.n_elems, dtype)
        for param, place in zip(self.params, self.slices, strict=True):
            order = param.blob.kernel_order
            if order is None:
                continue
            copy = KernelCopy(self.copies[place], partial(lambda blob, order, copy: kernels.copy_weights(
                blob.data_flat, order, copy), param.blob, order, self.copies[place]))
            for blob in (param.blob, *(other for other in param.sharers if other.kernel_order == order)):
                blob.kernel_copy = copy

    @property
    def lays_out(self) -> bool:
        """Whether forward writes the copies for kernels, since no update has written them."""
        return self.copies is not None and not all(copy.is_newest for copy in self._kernel_copies())

    def trust_copies(self, are_newest: bool) -> None:
        """Set whether the copies for kernels are up to date."""
        for copy in self._kernel_copies():
            copy.is_newest = are_newest

    def _kernel_copies(self) -> list[KernelCopy]:
        return [param.blob.kernel_copy for param in self.params if param.blob.kernel_copy is not None]

    def clear_diffs(self) -> None:
        """Make every gradient zero. Zeros are written at once only where several layers share a gradient. Others are
        marked as cleared: backward overwrites them, or ``write_cleared_diffs`` writes the zeros."""
        for param, place in zip(self.params, self.slices, strict=True):
            if param.sharers:
                self.diff[place] = 0
            else:
                param.blob.clear_diff()

    def write_cleared_diffs(self, layer_index: int) -> None:
        """After a layer's backward, write the zeros of its cleared gradients that backward did not overwrite."""
        for param in self._layers.get(layer_index, ()):
            param.blob.write_cleared_diff()

    def write_all_cleared_diffs(self) -> None:
        """Write the zeros of every gradient that has not been written since ``clear_diffs``."""
        for param in self.params:
            param.blob.write_cleared_diff()


def _bind(blob: Blob, name: str, memory: Any) -> None:
    if name == "data":
        blob.change_memory(memory)
    else:
        blob.bind_diff(memory)


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two host arrays are the same memory; False on a device."""
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and address(one) == address(other)


class Pieces:
    """Stands for a flat array; each interval within one piece is an array.

    Args:
        whole: flat, (n_elems,); its pieces that are not in ``moved`` are copied.
        moved: the intervals without memory until ``put``; disjoint, ascending.
        allocate: n_elems → a flat array for the other pieces.

    Attributes:
        places: the pieces' intervals, in elements.
    """

    def __init__(self, whole: Any, moved: Sequence[slice], allocate: Callable[[int], Any]) -> None:
        self.size, self.dtype, self.nbytes = whole.size, whole.dtype, whole.nbytes
        self.places = divided(whole.size, moved)
        starts = {place.start for place in moved}
        kept = [place for place in self.places if place.start not in starts]
        rest, at = allocate(sum(map(_length, kept))), 0
        self._starts = [place.start for place in self.places]
        self._arrays: list[Any] = [None] * len(self.places)
        for place in kept:
            copy_into(rest[at:at + _length(place)], whole[place])
            self.put(place, rest[at:at + _length(place)])
            at += _length(place)

    def put(self, place: slice, array: Any) -> None:
        """Use flat memory, with the contents, for a piece. Raises ValueError if there is no such piece."""
        self._arrays[self.places.index(place)] = array

    def whole(self, to_host: Callable[[Any], np.ndarray]) -> np.ndarray:
        return np.concatenate([to_host(array) for array in self._arrays])

    def __getitem__(self, place: slice) -> Any:
        """The array of an interval. Raises IndexError if it does not lie within one piece that has memory."""
        start, stop, _ = place.indices(self.size)
        number = bisect_right(self._starts, start) - 1
        array, piece = self._arrays[number], self.places[number]
        if array is None or stop > piece.stop:
            raise IndexError(f"elements {start} to {stop} do not lie in one piece of the buffer: {piece}")
        return array[start - piece.start:stop - piece.start]


def copy_into(target: Any, values: Any) -> None:
    """Copy a flat array to another, in host or device memory, and free the first one's memory if it can be."""
    if isinstance(values, np.ndarray) and not isinstance(target, np.ndarray):
        device.copy_from_host(target, values)
    elif isinstance(target, np.ndarray) and not isinstance(values, np.ndarray):
        target[...] = values.get()
    else:
        target[...] = values


def divided(n_elems: int, apart: Sequence[slice]) -> list[slice]:
    """All intervals of a buffer: the given ones, and those between them."""
    edges = sorted({0, n_elems, *(edge for place in apart for edge in (place.start, place.stop))})
    return [slice(start, stop) for start, stop in zip(edges, edges[1:], strict=False)]


def _length(place: slice) -> int:
    return int(place.stop - place.start)
