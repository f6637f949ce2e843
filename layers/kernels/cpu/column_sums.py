"""Sums over the rows of a matrix, for each of its columns: in chunks of rows, with the same bits on any threads.

Threads take rows, not columns: of rows shorter than a page, the lines that one thread reads would be fetched for the
other, too. Kernels of one matrix read a chunk in STREAMS places at once, which a processor fetches ahead side by side:
one stream of a matrix that no cache holds comes at half the speed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from scaffe.layers.kernels.cpu.memory import zeros
from scaffe.layers.kernels.cpu.parts import in_units
from scaffe.layers.kernels.cpu.words import words

WIDE = np.float64  # sums over many rows lose digits in float32
BLOCK = 32  # rows whose sums are taken in the type of their numbers, before they join the others in float64
STREAMS, STEPS = 4, 8  # a block has so many rows of each stream; kernels write the streams out
CHUNK_ELEMS, MOST_CHUNKS = 1 << 16, 64


def in_chunks(kernel: Callable[..., Any], n_sums: int, x: np.ndarray, *rest: Any) -> tuple[np.ndarray, int]:
    """Call ``kernel(first, stop, n_each, x, *rest, sums)`` for ranges of chunks of rows, on several threads.

    Args:
        kernel: compiled; of each chunk from ``first`` to ``stop`` it writes the sums, of the rows from n_each times its
            number on, n_each or what is left. ``sums`` is (chunks, n_sums, columns), float64, of zeros. It gets arrays
            of bfloat16 as their words.
        n_sums: how many numbers it finds for each column.
        x: (rows, columns).
        rest: further arguments, the same in every call.

    Returns:
        the sums of each chunk, and how many rows a chunk has. Both depend on x's shape alone.
    """
    n_rows, n_columns = x.shape
    n_each = -(-max(CHUNK_ELEMS // max(n_columns, 1), n_rows // MOST_CHUNKS, 1) // BLOCK) * BLOCK
    n_chunks = -(-n_rows // n_each)
    shape = max(n_chunks, 1), n_sums, n_columns  # of no rows the sums are 0
    sums = zeros(prod(shape), WIDE).reshape(shape)
    in_units(kernel, 1, n_chunks, None, n_each, words(x), *map(_word, rest), sums)
    return sums, n_each


def column_sums(kernel: Callable[..., Any], n_sums: int, x: np.ndarray, *rest: Any) -> np.ndarray:
    """The sums over all rows, float64 (n_sums, columns); see ``in_chunks``."""
    total: np.ndarray = in_chunks(kernel, n_sums, x, *rest)[0].sum(0)
    return total


def _word(argument: Any) -> Any:
    return words(argument) if isinstance(argument, np.ndarray) else argument
