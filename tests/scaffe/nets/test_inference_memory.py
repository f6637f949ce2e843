"""Blobs that share memory during a forward pass: who they are, that nothing needed is written over, what comes back."""

from __future__ import annotations

import numpy as np
import pytest

import scaffe as caffe
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.arrays import LINE, zeros
from scaffe.layers.kernels.specs import ConvSpec
from scaffe.nets.inference.arena import Activations
from scaffe.nets.inference.passes import Inference
from tests.scaffe.nets.test_inference import INPUT, NETS, add, build, conv, expected, fill, relu

POOL = 'layer {{ name: "{0}" type: "Pooling" bottom: "{1}" top: "{0}" pooling_param {{ kernel_size: 3 pad: 1 }} }}'
DEEP = (INPUT + conv("a", "x") + relu("a", "ra") + POOL.format("p", "ra") + conv("b", "p") + conv("c", "b")
        + add("s", "c", "p") + relu("s", "rs") + conv("d", "rs") + POOL.format("q", "d") + conv("e", "q")
        + add("t", "e", "rs") + conv("end", "t"))


def near(got: np.ndarray, wanted: np.ndarray) -> None:
    """Equal but for the rounding of sums of large numbers."""
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("text", [DEEP, *(text + conv("end", "z" if name == "shortcut" else "c", 3, "kernel_size: 1")
                                          for name, (text, _) in NETS.items() if name in ("shortcut", "in place"))])
def test_outputs_are_those_of_layers_with_memory_of_their_own(text):
    net = build(text)
    passes = Inference(net)
    for seed in (1, 2):
        fill(net, seed)
        passes.forward()
        near(net.blobs["end"].data, expected(text, seed)["end"])


def test_memory_is_shared_by_blobs_that_are_not_needed_together():
    net = build(DEEP)
    passes = Inference(net)
    passes.forward()
    names = [name for name in ("ra", "p", "b", "s", "rs", "d", "q", "t") if name not in
             {hidden for run in passes._convolutions.values() for hidden in run.group.hidden}]
    spans = {name: (start := net.blobs[name].data_flat.__array_interface__["data"][0],
                    start + net.blobs[name].data_flat.nbytes) for name in names}
    assert max(b for _, b in spans.values()) - min(a for a, _ in spans.values()) < sum(b - a for a, b in spans.values())
    assert not {"x", "end"} & passes.hidden


def test_memory_put_aside_comes_back_with_what_it_held():
    net = build(DEEP)
    passes = Inference(net)
    net.forward()
    before = {name: blob.data.copy() for name, blob in net.blobs.items()}
    passes.forward()
    passes.release()
    for name in passes.hidden:
        np.testing.assert_array_equal(net.blobs[name].data, before[name], err_msg=name)


@pytest.mark.parametrize("shape", [(1, 4, 3, 3), (5, 4, 9, 8)], ids=["smaller", "larger"])
def test_another_shape_of_the_input(shape):
    net = build(DEEP)
    passes = Inference(net)
    passes.forward()
    net.blobs["x"].reshape(shape)
    other = DEEP.replace("dim: 3 dim: 4 dim: 7 dim: 5", " ".join(f"dim: {n}" for n in shape))
    for seed in (3, 4):
        fill(net, seed)
        passes.forward()
        near(net.blobs["end"].data, expected(other, seed)["end"])


def test_blobs_that_are_shown_keep_their_own():
    net = build(DEEP)
    shared = Activations(net, [], ("p",)).names
    assert not {"x", "end", "p"} & shared
    assert {"ra", "q"} <= shared


def memory_of(net, name: str) -> int:
    return int(net.blobs[name].data_flat.__array_interface__["data"][0])


def test_a_sum_lies_where_what_it_adds_lay_unless_somebody_reads_that_afterwards():
    for more, is_shared in (("", True), (conv("later", "p"), False)):
        net = build(DEEP + more)
        Inference(net).forward()
        assert (memory_of(net, "rs") == memory_of(net, "p")) == is_shared


def test_a_sum_does_not_lie_on_the_bottom_of_its_own_convolution():
    net = build(INPUT + conv("a", "x") + conv("c", "a") + add("y", "a", "c") + conv("end", "y"))
    passes = Inference(net)
    passes.forward()
    assert memory_of(net, "y") != memory_of(net, "a")


@pytest.mark.parametrize(("n", "kernel", "group"), [(3, 1, 1), (3, 3, 1), (2, 3, 2), (600, 1, 1), (64, 3, 1)])
def test_plans_add_in_place(n, kernel, group):
    pad, rng = kernel // 2, np.random.default_rng(n)
    spec = ConvSpec((2, 2 * n, 9, 8), 2 * n, (kernel,) * 2, (1, 1), (pad,) * 2, (1, 1), group)
    plan = cpu.inference_convolution(spec, 0.25, True)
    x, added = (rng.standard_normal(int(np.prod(spec.in_shape)), np.float32) for _ in range(2))
    plan.set_weights(rng.standard_normal(spec.weight_shape, np.float32), rng.standard_normal(2 * n, np.float32))
    apart = np.full_like(added, np.nan)
    plan.forward(x, apart, added)
    plan.forward(x, added, added)
    np.testing.assert_allclose(added, apart, rtol=1e-5, atol=1e-5 * float(np.abs(apart).max()))


def test_every_blob_that_a_script_looks_at_holds_what_it_does_in_caffe(tmp_path):
    (tmp_path / "net.prototxt").write_text(DEEP)
    net, reference = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST), build(DEEP)
    for node in reference.nodes:
        for mine, theirs in zip(net.params.get(node.name, ()), node.layer.blobs, strict=False):
            mine.data[...] = theirs.data
    reference.unfused = True
    held = None
    for seed, name in enumerate(net.blobs):
        fill(net, seed)
        fill(reference, seed)
        net.forward()
        reference.forward()
        near(net.blobs[name].data, reference.blobs[name].data)
        if name == "rs":
            held = net.blobs[name].data
        if held is not None:
            near(held, reference.blobs["rs"].data)


@pytest.mark.parametrize("n_elems", [0, 1, 5, 1000])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_memory_begins_with_a_cache_line(n_elems, dtype):
    memory = zeros(n_elems, dtype)
    assert memory.shape == (n_elems,)
    assert memory.dtype == dtype
    assert n_elems == 0 or memory.__array_interface__["data"][0] % LINE == 0
    assert not memory.any()
