"""How the signs of a flat array lie in words of bits: those of 4,096 elements in 128 words of 32 bits.

Bit j of word w is for element 128 j + w of the 4,096: threads, and lanes of a vector, that are next to each other read
elements next to each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.kernels.extents import mismatch

LANES, BITS = 128, 32
TOGETHER = LANES * BITS
WORD = np.dtype(np.uint32)


def n_words(n_elems: int) -> int:
    """Words for the signs of so many elements."""
    return -(-n_elems // TOGETHER) * LANES


def expect_words(n_elems: int, signs: Any) -> None:
    """Raise LayerError unless the words are those for so many elements."""
    if signs.size != n_words(n_elems):
        raise mismatch(n_words(n_elems), signs.size)
