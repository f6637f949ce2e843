"""The orders in which records are read: as they come, or shuffled, the same on every rank and equal to Caffe 1.0's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from scaffe import forking


class InOrder:
    """Records one after another; after the last comes the first again.

    Args:
        n_records: number of records of the source.
        skip: records left out at the start of the first pass (Caffe's rand_skip).
    """

    def __init__(self, n_records: int, skip: int = 0) -> None:
        self.n_records, self.skip = n_records, skip

    def records(self, visits: np.ndarray) -> np.ndarray:
        """Record numbers of these visits, int64."""
        return (visits + self.skip) % self.n_records


class Passes:
    """An order given as an endless series of arrays of record numbers; visit v is the v-th number of the series.

    Args:
        n_records: number of records of the source.
        make: starts the series from its beginning; called again when earlier visits are asked for.
        skip: numbers left out at the start of the series (Caffe's rand_skip).
    """

    def __init__(self, n_records: int, make: Callable[[], Iterator[np.ndarray]], skip: int = 0) -> None:
        self.n_records, self._make, self._skip = n_records, make, skip
        self._lock = forking.Lock()
        self._series, self._start, self._pass = make(), 0, np.zeros(0, np.int64)

    def records(self, visits: np.ndarray) -> np.ndarray:
        """Record numbers, int64, of ascending visits. Visits before the current pass start the series again: slow."""
        places = visits + self._skip
        out = np.empty(len(visits), np.int64)
        done = 0
        with self._lock:
            if len(places) and places[0] < self._start:
                self._series, self._start, self._pass = self._make(), 0, self._pass[:0]
            while done < len(places):
                while places[done] >= self._start + len(self._pass):
                    self._start += len(self._pass)
                    self._pass = next(self._series)
                end = int(np.searchsorted(places, self._start + len(self._pass)))
                out[done:end] = self._pass[places[done:end] - self._start]
                done = end
        return out


def shuffled(n_records: int, seed: int, skip: int = 0) -> Passes:
    """Every record once in each pass. Before each pass, the order of the pass before is shuffled again.

    Source: ImageDataLayer::ShuffleImages of Caffe 1.0 (Fisher-Yates from the end over boost's uniform_int).

    Args:
        n_records: number of records of the source.
        seed: uint32, a number of the net's random stream; the same on every rank.
        skip: records left out at the start of the first pass.
    """
    return Passes(n_records, lambda: _boost_passes(n_records, seed), skip)


def shuffled_files(n_rows: Sequence[int]) -> Passes:
    """The rows of several files, file by file: files in random order, and the rows of each in random order.

    Row r of file f is record n_rows[0] + ... + n_rows[f-1] + r.

    Source: HDF5DataLayer of Caffe 1.0, which shuffles with the C library's ``rand`` from seed 1, whatever the
    solver's seed is.

    Args:
        n_rows: number of rows of each file.
    """
    return Passes(sum(n_rows), lambda: _libc_passes(n_rows))


class _Draws:
    """A stream of random numbers; those that one shuffle does not use are kept for the next."""

    def __init__(self, make: Callable[[int], np.ndarray]) -> None:
        self._make, self._left = make, np.zeros(0, np.uint64)

    def peek(self, n_elems: int) -> np.ndarray:
        if len(self._left) < n_elems:
            self._left = np.concatenate([self._left, self._make(n_elems - len(self._left))])
        return self._left[:n_elems]

    def use(self, n_elems: int) -> None:
        self._left = self._left[n_elems:]


def _boost_passes(n_records: int, seed: int) -> Iterator[np.ndarray]:
    from scaffe.data.kernels.fisher_yates import shuffle_from_the_end

    generator = np.random.MT19937()
    generator._legacy_seeding(seed)
    draws, items = _Draws(generator.random_raw), np.arange(n_records)
    while True:
        n_draws = n_records
        while (n_used := shuffle_from_the_end(items, draws.peek(n_draws))) < 0:
            n_draws += 64 + n_draws // 16
        draws.use(n_used)
        yield items.copy()


def _libc_passes(n_rows: Sequence[int]) -> Iterator[np.ndarray]:
    from scaffe.data.kernels.fisher_yates import LibcRand, shuffle_from_the_start

    rand = LibcRand()

    def shuffle(items: np.ndarray) -> None:
        shuffle_from_the_start(items, rand.draw(max(0, len(items) - 1)))

    if len(n_rows) == 1:
        rows = np.arange(n_rows[0])
        while True:
            shuffle(rows)
            yield rows.copy()
    firsts, files = np.cumsum([0, *n_rows]), np.arange(len(n_rows))
    n_shuffles = 1  # Caffe shuffles the rows once for the first file it opens, twice for each later one
    while True:
        shuffle(files)
        for file in files:
            rows = firsts[file] + np.arange(n_rows[int(file)])
            for _ in range(n_shuffles):
                shuffle(rows)
            n_shuffles = 2
            yield rows
