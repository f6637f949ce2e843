"""Shuffles in place, with the random numbers of the C and C++ libraries that Caffe was built on."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled

LARGEST = np.uint64(0xFFFFFFFF)
LAG, NEAR, WARM = 31, 3, 310  # lags and discarded numbers of the C library's additive feedback generator


@compiled
def shuffle_from_the_end(items: np.ndarray, draws: np.ndarray) -> int:
    """Fisher-Yates from the last item down, with boost's uniform_int over a 32-bit generator.

    The range of the generator is divided into buckets of equal length, one for each result. A number beyond the last
    bucket is rejected and the next one is taken (boost/random/uniform_int_distribution.hpp, the case of a generator
    with a larger range than the result).

    Args:
        items: 1-D, shuffled in place; not changed if there are too few numbers.
        draws: uint64, raw numbers of the generator, below 2**32.

    Returns:
        How many numbers were used, or -1 if there were too few.
    """
    places = np.empty(items.size, np.int64)
    n_used = 0
    for i in range(items.size - 1, 0, -1):
        bucket = LARGEST // np.uint64(i + 1)
        if LARGEST % np.uint64(i + 1) == np.uint64(i):
            bucket += np.uint64(1)
        while True:
            if n_used == draws.size:
                return -1
            place = draws[n_used] // bucket
            n_used += 1
            if place <= np.uint64(i):
                break
        places[i] = place
    for i in range(items.size - 1, 0, -1):
        items[i], items[places[i]] = items[places[i]], items[i]
    return n_used


@compiled
def shuffle_from_the_start(items: np.ndarray, draws: np.ndarray) -> None:
    """std::random_shuffle of the GNU C++ library: item i changes places with item draw % (i + 1).

    Args:
        items: 1-D, shuffled in place.
        draws: int64 (len(items) - 1,), numbers of the C library's ``rand``.
    """
    for i in range(1, items.size):
        place = draws[i - 1] % (i + 1)
        items[i], items[place] = items[place], items[i]


class LibcRand:
    """The numbers of the GNU C library's ``rand`` after ``srand(1)``, which is a program's initial state."""

    def __init__(self) -> None:
        state = [1]
        while len(state) < LAG:
            state.append(16807 * state[-1] % 0x7FFFFFFF)
        self._state = np.array(state[NEAR:] + state[:NEAR], np.uint32)
        self.draw(WARM)

    def draw(self, n_elems: int) -> np.ndarray:
        """The next numbers, int64 (n_elems,), each below 2**31."""
        out = np.empty(n_elems, np.int64)
        _libc_rand(self._state, out)
        return out


@compiled
def _libc_rand(state: np.ndarray, out: np.ndarray) -> None:
    """Fill ``out``; ``state`` holds the last LAG sums, uint32, oldest first, and is updated."""
    for i in range(out.size):
        total = np.uint32((np.uint64(state[0]) + np.uint64(state[state.size - NEAR])) & LARGEST)
        for k in range(state.size - 1):
            state[k] = state[k + 1]
        state[state.size - 1] = total
        out[i] = total >> 1
