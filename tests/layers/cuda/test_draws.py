"""Random numbers on the device: Philox's published numbers, Dropout's masks, fresh ones at every call and replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda.elementwise import Draws
from scaffe.layers.kernels.cuda.launch import run_flat
from tests.layers.cuda.rig import double, every_dtype, numbers

SHAPE = (8, 5, 6, 7)


def test_the_published_numbers(cp: Any) -> None:
    """Random123's known answers for Philox4x32-10: counter and key 0, and those of all ones."""
    for key, call, block, expected in ((0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),):
        state, draws = cp.asarray(np.array([key, call], np.uint64)), cp.empty(4 * (block + 1), np.uint32)
        run_flat("random", "raw_draws", np.dtype(np.float32), draws.size, (draws, state), per_thread=4)
        assert [f"{n:08x}" for n in draws.get()[-4:]] == expected.split()


def test_two_host_draws_seed_a_net(cp: Any) -> None:
    rng, follower = Stream(3), Stream(3)
    draws = Draws(rng)
    low, high = follower.draw(2).tolist()
    assert draws.array.get().tolist() == [low | high << 32, 0]
    draws.advance()
    assert draws.array.get()[1] == 1
    assert rng.to_bytes() == follower.to_bytes()


@pytest.mark.parametrize("used_before", [False, True], ids=["fresh", "in_use"])
def test_numbers_go_on_from_a_saved_place(cp: Any, used_before: bool) -> None:
    def plan_of(seed: int) -> tuple[Any, Any]:
        draws = cuda.draws(Stream(seed))
        return draws, cuda.uniform((10,), False, draws)

    draws, plan = plan_of(1)
    plan.next()
    place, expected = draws.to_bytes(), plan.next().get().tolist()
    other, again = plan_of(2)
    if used_before:
        again.next()
        address = other.array.data.ptr
    assert other.from_bytes(place)
    assert other.to_bytes() == place
    assert again.next().get().tolist() == expected
    assert not used_before or other.array.data.ptr == address  # recorded graphs read there


def test_numbers_start_anew_from_a_cpus_place(cp: Any) -> None:
    draws, on_cpu = cuda.draws(Stream(1)), Stream(5)
    assert draws.from_bytes(on_cpu.to_bytes())  # nothing draws
    plan = cuda.uniform((10,), False, draws)
    assert not draws.from_bytes(on_cpu.to_bytes())
    first = plan.next().get().tolist()
    assert not draws.from_bytes(on_cpu.to_bytes())
    assert plan.next().get().tolist() == first
    assert not on_cpu.from_bytes(draws.to_bytes())
    low, high = Stream(5).draw(2).tolist()
    assert draws.array.get().tolist() == [low | high << 32, 1]


@every_dtype
@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.9])
def test_dropout(cp: Any, ratio: float, dtype: np.dtype) -> None:
    plan = cuda.dropout(SHAPE, True, ratio, cuda.draws(Stream(1)), dtype)
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
    plan, x = cuda.dropout((64,), False, 0.5, cuda.draws(Stream(1))), cp.ones(64, np.float32)
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
    plan = cuda.uniform((10, 1000), False, cuda.draws(Stream(1)))
    values = plan.next().get()
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 4 / np.sqrt(12 * values.size)
    assert len(np.unique(values)) > 9950
    assert (plan.next().get() != values).mean() > 0.99
