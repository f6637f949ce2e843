"""Batches that are copied one ahead, and memory that recordings keep, with streams as late as CUDA's rules allow."""

from __future__ import annotations

import contextlib
from itertools import count
from typing import Any

import numpy as np

from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda.arena import Recording, arena
from tests import pretend
from tests.layers.cuda.conftest import REAL

N_ELEMS = 1000
late = contextlib.nullcontext if REAL else pretend.deferring


def test_every_batch_is_read_whole_and_in_its_turn(cp: Any) -> None:
    numbers = count()
    staging = cuda.staging(lambda: [np.full(N_ELEMS, next(numbers), np.float32)])
    with late(), cp.cuda.Stream(non_blocking=True):
        read = [staging.next()[0] * np.float32(1) for _ in range(7)]
        found = [array.get().tolist() for array in read]
    assert found == [[number] * N_ELEMS for number in range(7)]


def test_a_batch_of_another_length_gets_memory_of_its_own(cp: Any) -> None:
    lengths = iter((5, 5, 9, 9, 5, 5, 5))
    staging = cuda.staging(lambda: [np.full(n := next(lengths), n, np.float32)])
    with late(), cp.cuda.Stream(non_blocking=True):
        read = [staging.next()[0] * np.float32(1) for _ in range(6)]
        assert [array.get().tolist() for array in read] == [[n] * n for n in (5, 5, 9, 9, 5, 5)]


def test_a_recording_keeps_the_scratch_memory_it_was_made_with(cp: Any) -> None:
    arena.forget()
    x, y = cp.full(N_ELEMS, 3, np.float32), cp.zeros(N_ELEMS, np.float32)

    def run() -> None:
        (scratch,) = arena.take((N_ELEMS, np.float32))
        scratch[...] = x * 2
        y[...] = scratch
    with late(), cp.cuda.Stream(non_blocking=True):
        run()
        recording = Recording(run)
        arena.reserve((8 * N_ELEMS, np.float32))
        others = [cp.full(n, 7, np.float32) for n in (1024, N_ELEMS, 1008) for _ in range(3)]  # whatever was given back
        recording()
        assert all((other.get() == 7).all() for other in others)
        assert (y.get() == 6).all()


def test_what_a_recording_leaves_behind_goes_to_no_other_array(cp: Any) -> None:
    x, y = cp.full(N_ELEMS, 3, np.float32), cp.zeros(N_ELEMS, np.float32)
    with late(), cp.cuda.Stream(non_blocking=True):
        recording = Recording(lambda: y.__setitem__(..., x * 2 + 1))
        others = [cp.full(N_ELEMS, 7, np.float32) for _ in range(4)]
        recording()
        assert all((other.get() == 7).all() for other in others)
        assert (y.get() == 7).all()
