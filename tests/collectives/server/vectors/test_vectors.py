"""Vector commands on any number of shards against NumPy on the whole vector."""

import numpy as np
import pytest

from scaffe.collectives.errors import CommError
from scaffe.collectives.server.vectors import commands as c
from scaffe.collectives.server.vectors.shard import CHUNK_ELEMS, STEADY_BLOCKS, Blocks, VectorShard

SIZES = (1, 7, 97, CHUNK_ELEMS + 1, 3 * CHUNK_ELEMS + 17)
shards = pytest.mark.parametrize("n_shards", [1, 2, 3, 5, 8])
sizes = pytest.mark.parametrize("n_elems", SIZES)


class Shards:
    """All shards of a vector in one process."""

    def __init__(self, n_elems, n_shards, n_blocks=0, dtype=np.float32):
        layout = Blocks(n_elems, n_shards, n_blocks)
        self.all = [VectorShard(layout.of(i), np.dtype(dtype)) for i in range(n_shards)]

    def put(self, **vectors):
        for name, vector in vectors.items():
            for shard in self.all:
                shard.out(name)[:] = vector[shard.interval]

    def run(self, command):
        answers = [answer for shard in self.all for answer in shard.run(command)]
        return c.merged(command, answers) if isinstance(command, c.REDUCING) else None

    def get(self, name):
        return np.concatenate([shard.vectors[name] for shard in self.all])


def example(n_elems, seed=0):
    rng = np.random.default_rng(seed)
    x, y, z = (rng.normal(size=n_elems).astype(np.float32) for _ in range(3))
    x[rng.random(n_elems) < 0.3] = 0
    return {"x": x, "y": y, "z": np.abs(z)}


def pseudo_gradient(x, g, penalty):
    """Andrew & Gao's equation 4, an element at a time."""
    out = np.zeros(len(x))
    for i, (xi, gi, ci) in enumerate(zip(x, g, penalty)):
        left, right = gi + ci * (-1 if xi <= 0 else 1), gi + ci * (-1 if xi < 0 else 1)
        out[i] = left if left > 0 else right if right < 0 else 0
    return out


CASES = {
    "zero": (c.Zero("out"), lambda v: 0 * v["x"]),
    "fill": (c.Fill(((0, 1, 2.0), (3, 6, -1.0)), "out"),
             lambda v: np.array([2.0, 0, 0, -1, -1, -1, *np.zeros(len(v["x"]))])[:len(v["x"])]),
    "copy": (c.Copy("x", "out"), lambda v: v["x"]),
    "combine": (c.Combine((2.0, -0.5, 1e-3), ("x", "y", "z"), "out"),
                lambda v: 2 * v["x"].astype(float) - 0.5 * v["y"] + 1e-3 * v["z"]),
    "multiply": (c.Multiply("x", "y", "out"), lambda v: v["x"] * v["y"]),
    "clip": (c.Clip("x", -0.5, 0.25, "out"), lambda v: np.minimum(np.maximum(v["x"], -0.5), 0.25)),
    "steepest": (c.SteepestL1("x", "y", "z", "out"), lambda v: pseudo_gradient(v["x"], v["y"], v["z"])),
    "orthant": (c.Orthant("x", "y", "out"),
                lambda v: [np.sign(a) if a else -np.sign(b) for a, b in zip(v["x"], v["y"])]),
    "signs": (c.KeepSigns("x", "y", -1.0, "out"), lambda v: [a if a * b < 0 else 0 for a, b in zip(v["x"], v["y"])]),
}


@sizes
@shards
@pytest.mark.parametrize("name", CASES)
def test_a_command_does_on_shards_what_it_says_of_the_whole(name, n_shards, n_elems):
    command, expected = CASES[name]
    vectors, on = example(n_elems), Shards(n_elems, n_shards)
    on.put(**vectors)
    on.run(command)
    np.testing.assert_allclose(on.get("out"), expected(vectors), rtol=3e-7, atol=1e-7)
    for other in vectors:
        np.testing.assert_array_equal(on.get(other), vectors[other])


@shards
def test_commands_in_place(n_shards):
    vectors, on = example(97), Shards(97, n_shards)
    on.put(**vectors)
    on.run(c.Scale(-3.0, "x"))
    on.run(c.Axpy(0.5, "x", "y"))
    np.testing.assert_array_equal(on.get("x"), np.float32(-3) * vectors["x"])
    np.testing.assert_allclose(on.get("y"), vectors["y"] - 1.5 * vectors["x"].astype(float), rtol=1e-6, atol=1e-7)


@sizes
@shards
def test_inner_products_and_norms(n_shards, n_elems):
    vectors, on = example(n_elems, 3), Shards(n_elems, n_shards)
    on.put(**vectors)
    v = {name: vector.astype(np.longdouble) for name, vector in vectors.items()}
    dots = on.run(c.Dots(("x", "y"), ("y", "z", "x")))
    np.testing.assert_allclose(dots, [[(v[a] * v[b]).sum() for b in "yzx"] for a in "xy"], rtol=1e-12, atol=1e-12)
    assert on.run(c.Norm("x")) == pytest.approx(float((v["x"] ** 2).sum()), rel=1e-12)
    assert on.run(c.Norm("x", 1)) == pytest.approx(float(np.abs(v["x"]).sum()), rel=1e-12)
    assert on.run(c.Norm("x", 1, "z")) == pytest.approx(float((np.abs(v["x"]) * v["z"]).sum()), rel=1e-12)
    assert on.run(c.Norm("x", 0)) == float(np.abs(v["x"]).max())


@sizes
def test_steady_blocks_give_the_same_bits_on_any_number_of_shards(n_elems):
    found = set()
    for n_shards in (1, 2, 3, 5, 8, 64):
        on = Shards(n_elems, n_shards, STEADY_BLOCKS)
        on.put(**example(n_elems, 5))
        found.add(on.run(c.Dots(("x", "y"), ("y", "z"))).tobytes() + on.run(c.Norm("x", 1, "z")).tobytes())
    assert len(found) == 1


@shards
@pytest.mark.parametrize("n_elems", [0, *SIZES])
@pytest.mark.parametrize("n_blocks", [0, STEADY_BLOCKS])
def test_shards_hold_every_element_once(n_blocks, n_elems, n_shards):
    layout = Blocks(n_elems, n_shards, n_blocks)
    held = [i for shard in range(n_shards) for block in layout.of(shard) for i in range(block.start, block.stop)]
    assert held == list(range(n_elems))
    intervals = [layout.interval(shard) for shard in range(n_shards)]
    assert sum(interval.stop - interval.start for interval in intervals) == n_elems


def test_a_vector_that_nobody_made_is_named():
    with pytest.raises(CommError, match="no vector 'q'; it has x"):
        on = Shards(3, 1)
        on.put(x=np.zeros(3))
        on.run(c.Copy("q", "out"))
    with pytest.raises(CommError, match="no command int"):
        on.run(3)
