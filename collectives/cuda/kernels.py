"""Launches the kernels of kernels.cu on the current stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import device
from .span import Span

SOURCE = Path(__file__).with_name("kernels.cu")
ELEMENTS = {"float32": "float", "float64": "double", "float16": "Half", "bfloat16": "Brain", "int32": "int",
            "int64": "Long"}
WIRES = {"fp16": "Half", "bf16": "Brain"}
DEFINITIONS = {name: (f"-DELEMENT={kind}", f"-DELEMENT_NAME={name}") for name, kind in ELEMENTS.items()}
DEFINITIONS |= {name: (f"-DWIRE_ELEMENT={kind}", f"-DWIRE_NAME={name}") for name, kind in WIRES.items()}
THREADS_PER_BLOCK, MOST_BLOCKS, PACK_BYTES = 256, 1024, 16


class Kernels:
    """The compiled kernels of one process; a kernel is loaded when it is first asked for."""

    def __init__(self) -> None:
        """Raises CommError without a GPU. CuPy keeps what it compiles on disk."""
        self._make, self._source = device.load().RawModule, SOURCE.read_text()
        self._module, self._get = cache(self._compile), cache(self._find)

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
        blocks, threads = grid(max(own.nbytes, other.nbytes))
        arguments = (np.uint64(own.address), np.uint64(other.address), np.int64(own.size))
        return lambda: kernel(blocks, threads, arguments)

    def gather(self, bases: Any, offset: int, n_elems: int, dtype: np.dtype, op: str, ranks: Gathered) -> None:
        """Queue the reduction of the source ranks' elements, in rank order, into every target rank's buffer.

        bases: device array of uint64, where each rank's window starts; offset: bytes from there to the elements.
        """
        kernel = self._get(f"gather_{dtype.name}_{op}")
        blocks, threads = grid(n_elems * dtype.itemsize)
        numbers = [np.int32(number) for number in ranks]
        kernel(blocks, threads, (np.uint64(bases.data.ptr), np.int64(offset), np.int64(n_elems), *numbers))


Gathered = tuple[int, int, int, int, int]
"""First source rank, how many; first target rank, how many; a target rank to leave out, or -1."""


@cache
def kernels() -> Kernels:
    """The kernels of this process."""
    return Kernels()


def grid(n_bytes: int) -> tuple[tuple[int], tuple[int]]:
    """Blocks and threads a block for buffers of n_bytes: a pack of 16 bytes a thread, as long as there are blocks."""
    n_packs = -(-n_bytes // PACK_BYTES)
    return (max(1, min(-(-n_packs // THREADS_PER_BLOCK), MOST_BLOCKS)),), (THREADS_PER_BLOCK,)
