"""Small work of many layers in one launch: kernels whose only parameter is a table of addresses.

Within ``deferring`` such work waits until its end, until ``finish_deferred``, or until its table is full. Elsewhere it
is launched at once. The table is a parameter by value, so recordings keep it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np

from scaffe.layers.kernels import device
from scaffe.layers.kernels.cuda.arena import Part, results
from scaffe.layers.kernels.cuda.launch import THREADS, kernel, most_blocks

MOST_BYTES = 64 << 20  # of results that wait; ResNet-50's gradients of weights take 51 MB of a half type
ALIGN_BYTES = 256


class Table(NamedTuple):
    """A kernel of ``sources/`` that takes a table: block y does entry y.

    Attributes:
        n_arrays: addresses with which an entry begins.
        numbers: the types of its other fields.
        most: entries of a table. A kernel's parameters take 4,096 bytes at the most (before CUDA 12.1).
    """

    family: str
    name: str
    n_arrays: int
    numbers: tuple[type, ...]
    most: int

    @property
    def parameter(self) -> np.dtype:
        """The type of the kernel's parameter."""
        fields = [np.uint64] * self.n_arrays + [*self.numbers]
        entry = np.dtype([(f"f{number}", kind) for number, kind in enumerate(fields)], align=True)
        return np.dtype([("at", entry, self.most)])


GRADIENTS = Table("conversion", "gradients_in_caffes_order", 2, (np.int32,) * 4, 64)
SUMS = Table("batch_norm", "add_to_sums", 5, (np.float64, np.float64, np.float64, np.int32), 56)


class Work(NamedTuple):
    """One entry of a table.

    Attributes:
        arrays, numbers: the entry's fields.
        target: one of the arrays, which is written: two works on the same one share no launch.
        n_threads: how many have something to do.
    """

    arrays: tuple[Any, ...]
    numbers: tuple[Any, ...]
    target: Any
    n_threads: int


class _Queue:
    """What waits on one device: entries by kernel, and the memory that their results take in ``results``."""

    def __init__(self) -> None:
        self.is_open = False
        self.works: dict[tuple[Table, Any, Any], list[Work]] = {}
        self.used, self.wanted = 0, 0


_queue = device.PerDevice(_Queue)


@contextmanager
def deferring(wanted: bool = True) -> Iterator[None]:
    """In a with-block, let small work wait, or not. What waits at its end is launched; after an error it is dropped."""
    queue = _queue()
    before, queue.is_open = queue.is_open, wanted
    try:
        yield
        finish_deferred()
    except BaseException:
        queue.works.clear()
        raise
    finally:
        queue.is_open = before
    if not queue.is_open:
        _grow(queue)


def finish_deferred() -> None:
    """Launch what waits on the current device."""
    queue = _queue()
    for key in [*queue.works]:
        _launch(*key, queue.works.pop(key))
    queue.used = 0


def memory(part: Part) -> Any:
    """Memory for a result that work of a table will read; None where that is not to wait. It is the caller's until the
    next ``finish_deferred``."""
    queue, (shape, dtype) = _queue(), part
    if not queue.is_open:
        return None
    n_bytes = prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
    whole = -(-n_bytes // ALIGN_BYTES) * ALIGN_BYTES
    queue.wanted += whole
    if queue.used + whole > results.n_bytes:
        finish_deferred()
    if whole > results.n_bytes:
        return None
    (block,) = results.take((results.n_bytes, np.uint8))
    start, queue.used = queue.used, queue.used + whole
    return block[start:start + n_bytes].view(dtype).reshape(shape)


def add(table: Table, work: Work, dtype: Any, other: Any = None, waits: bool = True) -> None:
    """Let work wait if it may, else launch it. ``dtype``, ``other``: the types that its kernel is compiled for."""
    queue, key = _queue(), (table, np.dtype(dtype), other)
    waiting = queue.works.get(key, [])
    if any(each.target.data.ptr == work.target.data.ptr for each in waiting) or len(waiting) == table.most:
        _launch(*key, queue.works.pop(key))
    if queue.is_open and waits:
        queue.works.setdefault(key, []).append(work)
    else:
        _launch(*key, [work])


def _launch(table: Table, dtype: Any, other: Any, works: list[Work]) -> None:
    parameter = np.zeros(1, table.parameter)
    for place, work in enumerate(works):
        parameter["at"][0, place] = (*(array.data.ptr for array in work.arrays), *work.numbers)
    blocks = -(-max(work.n_threads for work in works) // THREADS)
    most = max(most_blocks() // len(works), 1)
    kernel(table.family, table.name, dtype, other)((min(blocks, most), len(works)), (THREADS,), (parameter,))


def _grow(queue: _Queue) -> None:
    """Have memory for what the last pass would have let wait; not while one is captured."""
    wanted, queue.wanted = min(queue.wanted, MOST_BYTES), 0
    if wanted > results.n_bytes and not device.current_stream().is_capturing():
        results.reserve((wanted, np.uint8))
