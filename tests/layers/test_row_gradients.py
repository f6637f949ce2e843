"""Gradients of inner products' weights block after block: the bits of the whole, which are NumPy's within rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from scaffe.layers.base.context import Context
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu, extents
from scaffe.layers.kernels.cpu.inner_product_plan import WeightGradients
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.layers.kernels.extents import row_blocks
from scaffe.layers.kernels.plans import RowwisePlan
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2
from scaffe.proto.text import parse_text

needs_onednn = pytest.mark.skipif(library() is None, reason="oneDNN is not installed")
SHAPES = [(1, 40, 33), (3, 100, 96), (70, 49, 131), (17, 260, 64)]  # few rows, tiles, and neither


@pytest.fixture(params=[1, 3], autouse=True)
def n_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Blocks of the shortest length there is."""
    monkeypatch.setattr(extents, "BLOCK_BYTES", 1)
    cpu.set_threads(request.param)
    yield request.param
    cpu.set_threads(1)


@pytest.mark.parametrize("n_rows", [1, 16, 17, 31, 33, 4096])
@pytest.mark.parametrize("row_bytes", [4, 60, 36864])
def test_blocks_are_all_rows_in_their_order(n_rows: int, row_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "BLOCK_BYTES", 100_000)
    found = row_blocks(n_rows, row_bytes)
    assert bool(found) == (n_rows * row_bytes >= 200_000)
    assert [row for block in found for row in range(n_rows)[block]] == (list(range(n_rows)) if found else [])
    for block in found:
        assert block.start % 16 == 0  # a cache line of float32, whatever is in a row
        assert (block.stop - block.start) * row_bytes <= 2 * 100_000 or block.stop - block.start <= 16


@needs_onednn
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("tiles", [False, True])
def test_block_by_block_they_have_the_bits_of_the_whole(m: int, n: int, k: int, tiles: bool) -> None:
    if tiles and k % 32:
        pytest.skip("tiles are for other lengths")
    plan = cpu.inner_product(m, n, k)
    assert isinstance(plan, RowwisePlan)
    plan = WeightGradients(plan, m, n, k) if tiles else plan
    rng = np.random.default_rng(m)
    x, gy = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (m, n)))
    whole, parts, bias, other = (np.full(s, np.nan, np.float32) for s in ((n, k), (n, k), n, n))
    plan.backward_weights(x, gy, whole, bias, True)
    scratch = np.full((max(b.stop - b.start for b in plan.rows), k), np.nan, np.float32)
    for block in plan.rows:  # all in one place, as training has them
        plan.backward_rows(x, gy, block, scratch[:block.stop - block.start])
        parts[block] = scratch[:block.stop - block.start]
    plan.backward_bias(gy, other)
    assert len(plan.rows) == -(-n // 16)
    np.testing.assert_array_equal(parts, whole)
    np.testing.assert_array_equal(other, bias)
    np.testing.assert_allclose(whole, gy.T.astype(float) @ x, rtol=0, atol=1e-5 * np.sqrt(m))
    plan.backward_weights(x, gy, whole, bias)  # added
    np.testing.assert_allclose(whole, 2 * parts, rtol=1e-6)
    np.testing.assert_allclose(bias, 2 * gy.sum(0, dtype=float), rtol=0, atol=1e-5 * np.sqrt(m))


NET = """force_backward: true
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 5 dim: 3 dim: 6 dim: 7 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 37 %s
  weight_filler { type: "gaussian" std: 1 } bias_filler { type: "gaussian" std: 1 } } }
layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 0.5 reduction_param { operation: SUMSQ } }
"""


def built(options: str = ""):
    net = build_net(graph.prepare(parse_text(NET % options, caffe_pb2.NetParameter), 0), Context(0, cpu, rng=Stream(1)))
    net.blobs["x"].data = np.random.default_rng(4).standard_normal(net.blobs["x"].shape).astype(np.float32)
    return net


@needs_onednn
def test_a_layers_blocks_are_its_backward(n_threads: int) -> None:
    """Of images, whose elements lie in another order than the weights: the layer's copy of them is made once."""
    whole, net = built(), built()
    for each in (whole, net):
        each.forward()
        each.clear_param_diffs()
        each.nodes[2].layer.backward(each.nodes[2].tops, [True], each.nodes[2].bottoms)
    whole.nodes[1].layer.backward(whole.nodes[1].tops, [True], whole.nodes[1].bottoms)
    node = net.nodes[1]
    node.layer.backward_bottoms(node.tops, [True], node.bottoms)
    np.testing.assert_array_equal(net.blobs["x"].diff, whole.blobs["x"].diff)
    found, bias = np.full((37, 126), np.nan, np.float32), np.full(37, np.nan, np.float32)
    blocks = node.layer.param_rows
    assert [block.start for block in blocks] == [0, 16, 32]
    for block in blocks:
        node.backward_rows(block, [found[block].reshape(-1), *([bias] if block is blocks[-1] else [])])
        net.blobs["x"].data[...] = 7  # read with the first block
    np.testing.assert_array_equal(found, whole.nodes[1].layer.blobs[0].diff)
    np.testing.assert_array_equal(bias, whole.nodes[1].layer.blobs[1].diff)
    assert all(blob.is_cleared for blob in node.layer.blobs)  # nobody has touched the gradients' own memory


def test_what_has_no_blocks() -> None:
    assert not built("transpose: true").nodes[1].layer.param_rows
    assert not built().nodes[2].layer.param_rows
    assert not getattr(cpu.inner_product(3, 40, 33, dtype=np.float64), "rows", [])
