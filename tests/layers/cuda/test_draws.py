"""Random numbers on the device: Philox's published numbers, Dropout's masks, fresh ones at every call and replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from layers.kernels import cuda
from layers.kernels.cuda.draws_plan import State
from layers.kernels.cuda.launch import run_flat
from layers.random import Stream
from tests.layers.cuda.rig import double, every_dtype, numbers

SHAPE = (8, 5, 6, 7)


def test_the_published_numbers(cp: Any) -> None:
    """Random123's known answers for Philox4x32-10: counter and key 0, and those of all ones."""
    for key, call, block, expected in ((0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),):
        state, draws = cp.asarray(np.array([key, call], np.uint64)), cp.empty(4 * (block + 1), np.uint32)
        run_flat("random", "raw_draws", np.dtype(np.float32), draws.size, (draws, state), per_thread=4)
        assert [f"{n:08x}" for n in draws.get()[-4:]] == expected.split()


def test_two_host_draws_seed_a_layer(cp: Any) -> None:
    taken = []
    state = State(lambda n: taken.append(n) or Stream(3).draw(n))
    low, high = Stream(3).draw(2).tolist()
    assert state.array.get().tolist() == [low | high << 32, 0]
    state.advance()
    assert state.array.get()[1] == 1
    assert taken == [2]


@every_dtype
@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.9])
def test_dropout(cp: Any, ratio: float, dtype: np.dtype) -> None:
    plan = cuda.dropout(SHAPE, True, ratio, Stream(1).draw, dtype)
    x, gy = numbers(int(np.prod(SHAPE)), dtype, 0, 0.5, 1), numbers(int(np.prod(SHAPE)), dtype, 1, 0.5, 1)
    masks = []
    for _ in range(2):
        y = cp.asarray(x)
        plan.forward(y, y)
        kept = double(y.get()) != 0
        np.testing.assert_allclose(double(y.get()), np.where(kept, double(x) / (1 - ratio), 0), rtol=1e-2)
        gx = cp.asarray(gy)
        plan.backward(gx, gx)
        np.testing.assert_array_equal(double(gx.get()) != 0, kept)
        assert abs(kept.mean() - (1 - ratio)) < 4 * np.sqrt(ratio * (1 - ratio) / kept.size)
        masks.append(kept)
    assert (masks[0] != masks[1]).any()


def test_a_graph_draws_anew_at_each_launch(cp: Any) -> None:
    plan, x = cuda.dropout((64,), False, 0.5, Stream(1).draw), cp.ones(64, np.float32)
    y, stream = cp.empty(64, np.float32), cp.cuda.Stream(non_blocking=True)
    plan.forward(x, y)  # compiles, and takes its seed
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        plan.forward(x, y)
        graph = stream.end_capture()
        seen = []
        for _ in range(3):
            graph.launch(stream)
            seen.append(tuple(y.get().tolist()))
    assert len(set(seen)) == 3


def test_uniform_numbers(cp: Any) -> None:
    plan = cuda.uniform((10, 1000), False, Stream(1).draw)
    values = plan.next().get()
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 4 / np.sqrt(12 * values.size)
    assert len(np.unique(values)) > 9950
    assert (plan.next().get() != values).mean() > 0.99
