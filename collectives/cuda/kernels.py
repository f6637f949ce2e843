"""Launches the kernels of kernels.cu on the current stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.streams import Span
from scaffe.environment import CUDA_MULTIPROCESSORS

SOURCE = Path(__file__).with_name("kernels.cu")
ELEMENTS = {"float32": "float", "float64": "double", "float16": "Half", "bfloat16": "Brain", "int32": "int",
            "int64": "Long"}
WIRES = {"fp16": "Half", "bf16": "Brain"}
DEFINITIONS = {name: (f"-DELEMENT={kind}", f"-DELEMENT_NAME={name}") for name, kind in ELEMENTS.items()}
DEFINITIONS |= {name: (f"-DWIRE_ELEMENT={kind}", f"-DWIRE_NAME={name}") for name, kind in WIRES.items()}
THREADS_PER_BLOCK, BLOCKS_PER_MULTIPROCESSOR, PACK_BYTES = 256, 6, 16
"""As in kernels.cu. More blocks than fit at once would run in a second round that leaves the card half empty."""
MOST_RANKS = 64
MULTIPROCESSORS = 32
"""That a sum over other GPUs' memory may fill; the others compute meanwhile. Assumed, not measured: 16 of them have 1.5
MB of loads on their way (6 blocks of 256 threads, 64 bytes each), twice what 450 GB/s of NVLink brings in 1.5 us."""
NUMBERS = {"offset": np.int64, "n_elems": np.int64, "first_source": np.int32, "n_sources": np.int32,
           "first_target": np.int32, "n_targets": np.int32, "left_out": np.int32}
GATHER_PARAMETER = np.dtype([("bases", np.uint64, MOST_RANKS), *NUMBERS.items()], align=True)
"""The one parameter of the gather kernels: a struct, passed by value."""
MULTIPROCESSOR_COUNT = 16  # cudaDevAttrMultiProcessorCount


class GatherRanks(NamedTuple):
    """Which ranks a gather kernel reads and writes: consecutive sources, consecutive targets with one gap at most.

    Attributes:
        first_source, n_sources: the ranks whose elements are reduced.
        first_target, n_targets: the ranks whose buffers receive the result.
        left_out: a rank among the targets that does not, or -1.
    """

    first_source: int
    n_sources: int
    first_target: int
    n_targets: int
    left_out: int


class Kernels:
    """The compiled kernels of one process; a kernel is compiled when it is first asked for. ``multiprocessors``: how
    many a sum over other GPUs' memory fills; ``most_blocks``: how many blocks the device runs at once."""

    def __init__(self) -> None:
        """Prepares for the current device. CuPy caches what it compiles on disk. Raises CommError without a GPU."""
        self._make, self._source = device.load().RawModule, SOURCE.read_text()
        self._module, self._get = cache(self._compile), cache(self._find)
        cuda = device.load().cuda
        count = cuda.runtime.deviceGetAttribute(MULTIPROCESSOR_COUNT, cuda.Device().id)
        self._n_multiprocessors, self.most_blocks = count, count * BLOCKS_PER_MULTIPROCESSOR
        self.multiprocessors = 0
        self.allow(None)

    def allow(self, multiprocessors: int | None) -> None:
        """Sets how many multiprocessors a sum over other GPUs' memory may fill, unless the environment does.
        ``multiprocessors``: None for what is assumed. Raises UserError: the environment has no number."""
        given = CUDA_MULTIPROCESSORS.get()
        wanted = multiprocessors or MULTIPROCESSORS if given is None else given
        self.multiprocessors = min(wanted or self._n_multiprocessors, self._n_multiprocessors)

    def _compile(self, kind: str) -> Any:
        """The kernels of one element type or one wire."""
        return self._make(code=self._source, options=("-std=c++17", *DEFINITIONS[kind]))

    def _find(self, name: str) -> Any:
        return self._module(name.split("_")[1]).get_function(name)

    def elementwise(self, name: str, own: Span, other: Span) -> Callable[[], None]:
        """Binds an elementwise kernel to two spans of equally many elements.

        Args:
            name: `combine_<type>_<op>`: own = own op other; `pack_<wire>`, `unpack_<wire>`: own = other in another
                precision.
            other: what is read, in device or pinned memory.

        Returns:
            A call that queues the kernel on the current stream.
        """
        kernel = self._get(name)
        blocks, threads = grid(max(own.nbytes, other.nbytes), self.most_blocks)
        arguments = (np.uint64(own.address), np.uint64(other.address), np.int64(own.size))
        return lambda: kernel(blocks, threads, arguments)

    def gathering(self, bases: Sequence[int], offset: int, n_elems: int, dtype: np.dtype[Any], op: str,
                  ranks: GatherRanks, is_remote: bool = False) -> Callable[[], None]:
        """Binds a gather kernel: it reduces the source ranks' elements, in rank order, into every target's buffer.

        Args:
            bases: the address in this process at which each rank's window starts.
            offset: bytes from there to the first element.
            op: sum, max, min or prod.
            is_remote: whether some of them have other GPUs: then it fills `multiprocessors` only.

        Returns:
            A call that queues the kernel on the current stream.
        """
        kernel = self._get(f"gather_{dtype.name}_{op}")
        work = np.zeros(1, GATHER_PARAMETER)
        work["bases"][0, : len(bases)] = bases
        for name, number in zip(NUMBERS, (offset, n_elems, *ranks), strict=True):
            work[name] = number

        def queue() -> None:
            most = self.multiprocessors * BLOCKS_PER_MULTIPROCESSOR if is_remote else self.most_blocks
            kernel(*grid(n_elems * dtype.itemsize, most), (work,))
        return queue


@cache
def kernels() -> Kernels:
    """Returns the kernels of this process."""
    return Kernels()


def grid(n_bytes: int, most_blocks: int) -> tuple[tuple[int], tuple[int]]:
    """Computes a launch's shape: one pack of 16 bytes per thread, as long as there are blocks for it. ``most_blocks``:
    how many blocks the device runs at once. Returns (blocks,), (threads per block,)."""
    n_packs = -(-n_bytes // PACK_BYTES)
    return (max(1, min(-(-n_packs // THREADS_PER_BLOCK), most_blocks)),), (THREADS_PER_BLOCK,)


ROWS_SOURCE = Path(__file__).with_name("rows.cu")
WORDS = (16, 8, 4)
"""Bytes that a thread moves at once, the most first."""


class RowOrder:
    """Which row of a spread-out array each row of a packed one is; both have rows of the same length.

    Args:
        positions: int (n_packed,), numbers of rows of the spread-out array, without repeats.
        row_bytes: length of a row, a multiple of 4.
    """

    def __init__(self, positions: np.ndarray, row_bytes: int) -> None:
        self._positions = device.load().asarray(positions.astype(np.int32))
        self._placed = device.Point.now()
        self._word = next(word for word in WORDS if row_bytes % word == 0)
        self._row_words, self._n_bytes = row_bytes // self._word, row_bytes * len(positions)

    def gather(self, spread: Any, packed: Any) -> None:
        """Queue ``packed[i] = spread[positions[i]]``; contiguous arrays (rows, row_elems), aligned to 16 bytes."""
        self._queue("gather", spread, packed)

    def scatter(self, packed: Any, spread: Any) -> None:
        """Queue ``spread[positions[i]] = packed[i]``; see ``gather``."""
        self._queue("scatter", spread, packed)

    def _queue(self, way: str, spread: Any, packed: Any) -> None:
        self._placed.hold()
        shape = grid(self._n_bytes, kernels().most_blocks)
        addresses = [np.uint64(array.data.ptr) for array in (packed, spread, self._positions)]
        kernel = _module().get_function(f"{way}_rows_{self._word}")
        kernel(*shape, (*addresses, np.int64(self._n_bytes // self._word), np.int32(self._row_words)))


@cache
def _module() -> Any:
    return device.load().RawModule(code=ROWS_SOURCE.read_text(), options=("-std=c++17",))
