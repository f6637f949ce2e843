"""Layers whose calls were made ready: which they are, and that whatever changes between passes counts."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from scaffe.errors import UserError
from scaffe.jit import checks_bounds
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu.onednn.library import library
from scaffe.nets.inference.passes import Inference
from tests.scaffe.nets.test_inference import INPUT, add, agree, build, conv, expected, fill, norm, relu
from tests.scaffe.nets.test_per_image_parallelism import layer

pytestmark = [pytest.mark.skipif(library() is None, reason="no oneDNN"),
              pytest.mark.skipif(checks_bounds(), reason="native code has nobody to raise to")]

SEPARATE = "kernel_size: 3 pad: 1 group: 32"
TEXT = (INPUT + conv("a", "x", 32) + relu("a") + conv("b", "a", 32, SEPARATE) + norm("b") + relu("b")
        + conv("c", "b", 32, "kernel_size: 1") + add("s", "a", "c") + relu("s")
        + layer("Pooling", "p", "s", "pooling_param { kernel_size: 3 stride: 2 }")
        + conv("d", "p", 64, "kernel_size: 1") + conv("e", "d", 3, "kernel_size: 1"))


IP = 'num_output: 24 weight_filler { type: "gaussian" std: 0.1 } bias_filler { type: "uniform" min: -1 max: 1 }'
DENSE = (INPUT.replace("dim: 3", "dim: 2") + conv("a", "x", 32) + layer("LRN", "n", "a", "lrn_param { alpha: 2 }")
         + layer("Pooling", "p", "n", "pooling_param { kernel_size: 3 stride: 2 }")
         + layer("Pooling", "m", "p", "pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 }")
         + layer("InnerProduct", "f", "m", f"inner_product_param {{ {IP} }}") + relu("f", slope=0.25)
         + layer("Dropout", "f", "f")
         + layer("Reshape", "r", "f", "reshape_param { shape { dim: 0 dim: 4 dim: 6 } }")
         + layer("Flatten", "g", "r") + layer("InnerProduct", "e", "g", f"inner_product_param {{ {IP} }}"))


@pytest.fixture
def passes():
    """Passes of a net, three of which have run, on one thread."""
    cpu.set_threads(1)
    made = Inference(build(TEXT))
    for _ in range(3):
        made.forward()
    return made


def ready(passes):
    """The names of the first layers of what is ready, each with the number of its calls."""
    nodes = passes._net.nodes
    return {nodes[i].name: len(found._calls) for i, found in passes._prepared._found.items() if found is not None}


def run(passes, seed):
    """The output for other values of the input, and what it should be."""
    fill(passes._net, seed)
    passes.forward()
    agree(passes._net.blobs["e"].data, expected(TEXT, seed)["e"])


def test_layers_run_by_ready_calls(passes):
    assert ready(passes) == {"a": 6}  # the Split has nothing to do
    for seed in (2, 3):
        run(passes, seed)


def test_data_that_come_in_other_memory_each_time_are_read_by_a_layer_that_is_not_ready(passes):
    net = passes._net
    for seed in (2, 3, 4):
        net.blobs["x"].change_memory(np.zeros(net.blobs["x"].n_elems, np.float32))
        run(passes, seed)
    assert ready(passes) == {"relu_a": 5}


def test_the_bits_are_those_of_the_first_pass(passes):
    fill(passes._net, 2)
    passes.forward()
    assert ready(passes)
    again = passes._net.blobs["e"].data.copy()
    first = build(TEXT)
    fill(first, 2)
    Inference(first).forward()
    np.testing.assert_array_equal(first.blobs["e"].data, again)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_another_number_of_threads(passes, n_threads):
    cpu.set_threads(n_threads)
    try:
        run(passes, 2)
        assert not ready(passes)
        run(passes, 3)
        run(passes, 4)
        assert ready(passes) or passes._ran_per_image  # whose threads have nets of their own
    finally:
        cpu.set_threads(1)
    run(passes, 5)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_layers_that_are_no_convolutions(n_threads):
    cpu.set_threads(n_threads)
    try:
        net = build(DENSE)
        passes = Inference(net, per_image=False)
        passes.lay_out()
        for seed in (1, 1, 2, 3):
            fill(net, seed)
            passes.forward()
            agree(net.blobs["e"].data, expected(DENSE, seed)["e"])
        assert ready(passes) == {"a": 7}  # LRN, two poolings, fc with the copy of images in another order, fc
        for moved in (net.node("f").layer.blobs[0], net.node("e").layer.blobs[1]):
            moved.change_memory(moved.data_flat * 3)
            passes.forward()
            wanted = build(DENSE)
            for name in "fe":
                for blob, other in zip(wanted.node(name).layer.blobs, net.node(name).layer.blobs, strict=True):
                    blob.data[...] = other.data
            fill(wanted, 3)
            wanted.unfused = True
            wanted.forward()
            agree(net.blobs["e"].data, wanted.blobs["e"].data)
    finally:
        cpu.set_threads(1)


def test_another_thread(passes):
    failed = []

    def work():
        try:
            for seed in (2, 3, 4):
                run(passes, seed)
        except BaseException as error:
            failed.append(error)

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert not failed
        run(passes, 5)


@pytest.mark.parametrize("name", ["a", "c", "s", "p", "e"])
def test_a_blob_in_other_memory(passes, name):
    blob = passes._net.blobs[name]
    blob.change_memory(np.full(blob.n_elems, np.nan, np.float32))
    for seed in (2, 3):
        run(passes, seed)


def test_memory_put_aside_and_used_again(passes):
    for seed in (2, 3):
        passes.release()
        run(passes, seed)
    assert ready(passes)


def test_a_source_that_changes_its_shape_in_a_pass(passes, monkeypatch):
    net, shapes = passes._net, iter([(2, 4, 9, 6), (2, 4, 9, 6), (5, 4, 7, 5), (1, 4, 9, 8), (1, 4, 9, 8)])

    def bring(bottom, top):
        top[0].reshape(next(shapes))
        fill(net, 2)

    monkeypatch.setattr(net.nodes[0].layer, "forward", bring)
    for shape in [(2, 4, 9, 6)] * 2 + [(5, 4, 7, 5)] + [(1, 4, 9, 8)] * 2:
        passes.forward()
        text = TEXT.replace("dim: 3 dim: 4 dim: 7 dim: 5", " ".join(f"dim: {n}" for n in shape))
        agree(net.blobs["e"].data, expected(text, 2)["e"])


def test_new_weights(passes):
    def change(net):
        for node in net.nodes:
            for blob in node.layer.blobs:
                blob.data[...] *= 1.25

    change(passes._net)
    passes._net.note_written()
    for seed in (2, 3, 4):
        fill(passes._net, seed)
        passes.forward()
        agree(passes._net.blobs["e"].data, expected(TEXT, seed, change=change)["e"])
    assert ready(passes)


def test_a_call_that_fails_names_its_layer(passes):
    found = next(found for found in passes._prepared._found.values() if found is not None)
    table = found._calls._table
    before = table[0, 1]
    table[0, 1] = 0  # no primitive
    with pytest.raises(UserError, match="'a'.*primitive_execute"):
        passes.forward()
    table[0, 1] = before
    run(passes, 2)
