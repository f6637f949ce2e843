"""Compiles the kernels of ``sources/`` for an element type at first use, and launches them.

CuPy keeps what NVRTC compiled on disk, so a machine compiles each source once for each type.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.kernels import device

SOURCES = Path(__file__).with_name("sources")
HEADERS = {"batch_norm": ("rows.cuh", "thinned.cuh"), "channels": ("rows.cuh",),
           "thinned": ("rows.cuh", "thinned.cuh")}  # beside numbers.cuh
OPTIONS = ("-std=c++17",)  # CuPy adds that unmarked functions, as lambdas are, are the device's
THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 8  # 2048 threads: as many as it holds
NAMES = {"float32": "float", "float64": "double", "float16": "half_t", "bfloat16": "bfloat_t"}


def element(dtype: Any) -> str:
    """The C++ name of an element type. Raises LayerError for one that the kernels do not support."""
    name = NAMES.get(np.dtype(dtype).name)
    if name is None:
        raise LayerError(f"GPU kernels take {', '.join(NAMES)}, got {np.dtype(dtype).name}")
    return name


def wide(dtype: Any) -> np.dtype:
    """The type of sums, scalars and parameters for arrays of ``dtype``: float64 for float64, else float32."""
    return np.dtype(np.float64 if np.dtype(dtype) == np.float64 else np.float32)


def source(family: str) -> str:
    """The source text of a family of kernels (a ``.cu`` file) with its headers."""
    parts = ("numbers.cuh", *HEADERS.get(family, ()), f"{family}.cu")
    return "\n".join((SOURCES / name).read_text() for name in parts)


def options(dtype: Any, other: Any = None, place: str = "unsigned char") -> tuple[str, ...]:
    """Compiler options for arrays of ``dtype`` and, if the kernels have a second type, ``other``."""
    return (*OPTIONS, f"-DElement={element(dtype)}", f"-DOther={element(dtype if other is None else other)}",
            f"-DPlace={place}")


@cache
def kernel(family: str, name: str, dtype: Any, other: Any = None, place: str = "unsigned char") -> Any:
    """One kernel: ``kernel(grid, block, arguments)`` queues it on the current stream."""
    return _module(family, np.dtype(dtype), other, place).get_function(name)


@cache
def _module(family: str, dtype: np.dtype, other: Any, place: str) -> Any:
    return device.load().RawModule(code=source(family), options=options(dtype, other, place))


@device.PerDevice
def most_blocks() -> int:
    """Blocks of 256 threads that fill the device."""
    cupy = device.load()
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
    return BLOCKS_PER_MULTIPROCESSOR * int(properties["multiProcessorCount"])


def blocks_for(n_threads: int) -> tuple[int]:
    """The grid for the work of n_threads threads; at most what fills the device, as kernels loop over the rest."""
    return (min(-(-n_threads // THREADS), most_blocks()),)


def pack(dtype: Any) -> int:
    """Elements that a thread reads in one load of 16 bytes."""
    return 16 // int(np.dtype(dtype).itemsize)


def run_flat(family: str, name: str, dtype: Any, n_elems: int, arguments: tuple[Any, ...], *, other: Any = None,
             per_thread: int | None = None) -> None:
    """Launch a kernel that loops over a flat array of n_elems elements, which is its last parameter (int64). No thread
    has a second turn: update kernels are faster so, on an H200, than with blocks that stay."""
    if n_elems:
        n_blocks = -(-n_elems // ((per_thread or pack(dtype)) * THREADS))
        kernel(family, name, np.dtype(dtype), other)((n_blocks,), (THREADS,), (*arguments, np.int64(n_elems)))


def columns_grid(n_rows: int, n_channels: int, dtype: Any,
                 n_blocks: int = 0) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid and block for (rows, channels): x runs over channels, up to 32 loads side by side, y over rows; one block if
    there are none. ``n_blocks``: those that fill the device; 0: ``most_blocks``."""
    n_packs = -(-n_channels // pack(dtype)) if n_channels % pack(dtype) == 0 else n_channels
    across = 1
    while across < min(n_packs, 32):
        across *= 2
    down = THREADS // across
    grid_x = max(min(-(-n_packs // across), 1024), 1)
    grid_y = max(min(-(-n_rows // down), -(-(n_blocks or most_blocks()) // grid_x), 65535), 1)
    return (grid_x, grid_y), (across, down)
