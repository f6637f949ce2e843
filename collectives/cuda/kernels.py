"""Launches the kernels of kernels.cu on the current stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.span import Span

SOURCE = Path(__file__).with_name("kernels.cu")
ELEMENTS = {"float32": "float", "float64": "double", "float16": "Half", "bfloat16": "Brain", "int32": "int",
            "int64": "Long"}
WIRES = {"fp16": "Half", "bf16": "Brain"}
DEFINITIONS = {name: (f"-DELEMENT={kind}", f"-DELEMENT_NAME={name}") for name, kind in ELEMENTS.items()}
DEFINITIONS |= {name: (f"-DWIRE_ELEMENT={kind}", f"-DWIRE_NAME={name}") for name, kind in WIRES.items()}
THREADS_PER_BLOCK, BLOCKS_PER_MULTIPROCESSOR, PACK_BYTES = 256, 6, 16
"""As kernels.cu has them: more blocks would wait until others end, and leave the card half empty then."""
MOST_RANKS = 64
NUMBERS = {"offset": np.int64, "n_elems": np.int64, "first_source": np.int32, "n_sources": np.int32,
           "first_target": np.int32, "n_targets": np.int32, "left_out": np.int32}
GATHERED = np.dtype([("bases", np.uint64, MOST_RANKS), *NUMBERS.items()], align=True)
"""The parameter of the gathering kernels."""
MULTIPROCESSORS = 16  # cudaDevAttrMultiProcessorCount


class Kernels:
    """The compiled kernels of one process; a kernel is loaded when it is first asked for."""

    def __init__(self) -> None:
        """For cards like the current one. Raises CommError without a GPU. CuPy keeps what it compiles on disk."""
        self._make, self._source = device.load().RawModule, SOURCE.read_text()
        self._module, self._get = cache(self._compile), cache(self._find)
        cuda = device.load().cuda
        count = cuda.runtime.deviceGetAttribute(MULTIPROCESSORS, cuda.Device().id)
        self._most_blocks = count * BLOCKS_PER_MULTIPROCESSOR

    def _compile(self, kind: str) -> Any:
        """The kernels of one element type or one wire."""
        return self._make(code=self._source, options=("-std=c++17", *DEFINITIONS[kind]))

    def _find(self, name: str) -> Any:
        return self._module(name.split("_")[1]).get_function(name)

    def elementwise(self, name: str, own: Span, other: Span) -> Callable[[], None]:
        """A call that queues the kernel `name` on two arrays of as many elements; `other` may lie in pinned memory.

        combine_<type>_<op>: own = own op other; pack_<wire>, unpack_<wire>: own = other in another precision.
        """
        kernel = self._get(name)
        blocks, threads = grid(max(own.nbytes, other.nbytes), self._most_blocks)
        arguments = (np.uint64(own.address), np.uint64(other.address), np.int64(own.size))
        return lambda: kernel(blocks, threads, arguments)

    def gathering(self, bases: Sequence[int], offset: int, n_elems: int, dtype: np.dtype, op: str,
                  ranks: Gathered) -> Callable[[], None]:
        """A call that queues the reduction of the source ranks' elements, in rank order, into every target's buffer.

        bases: where each rank's window starts in this process; offset: bytes from there to the elements.
        """
        kernel = self._get(f"gather_{dtype.name}_{op}")
        blocks, threads = grid(n_elems * dtype.itemsize, self._most_blocks)
        work = np.zeros(1, GATHERED)
        work["bases"][0, : len(bases)] = bases
        for name, number in zip(NUMBERS, (offset, n_elems, *ranks)):
            work[name] = number
        return lambda: kernel(blocks, threads, (work,))


Gathered = tuple[int, int, int, int, int]
"""First source rank, how many; first target rank, how many; a target rank to leave out, or -1."""


@cache
def kernels() -> Kernels:
    """The kernels of this process."""
    return Kernels()


def grid(n_bytes: int, most_blocks: int) -> tuple[tuple[int], tuple[int]]:
    """Blocks and threads a block for buffers of n_bytes: a pack of 16 bytes a thread, as long as there are blocks."""
    n_packs = -(-n_bytes // PACK_BYTES)
    return (max(1, min(-(-n_packs // THREADS_PER_BLOCK), most_blocks)),), (THREADS_PER_BLOCK,)
