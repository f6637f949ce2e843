"""Forward passes for some images of a batch at a time, on threads: which layers run so, that nothing differs."""

from __future__ import annotations

import pytest

from scaffe.errors import LayerError, UserError
from scaffe.layers.kernels import cpu
from scaffe.layers.vision.pooling import Pooling
from scaffe.nets.inference import per_image_parallelism
from scaffe.nets.inference.passes import Inference
from scaffe.nets.inference.per_image_parallelism import find_per_image_prefix, images_at_once
from tests.scaffe.nets.test_inference import add, agree, build, conv, expected, fill, norm, relu

INPUT = 'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: {} dim: 4 dim: 9 dim: 8 }} }} }}'


def layer(kind: str, name: str, bottom: str, more: str = "", top: str = "") -> str:
    return f'layer {{ name: "{name}" type: "{kind}" bottom: "{bottom}" top: "{top or name}" {more} }}'


BODY = (conv("a", "x") + norm("a") + relu("a")
        + layer("Pooling", "p", "a", "pooling_param { kernel_size: 3 stride: 2 }")
        + conv("b", "p") + layer("LRN", "n", "b", "lrn_param { local_size: 3 alpha: 0.5 }")
        + add("s", "n", "p") + relu("s", "rs", 0.1) + conv("c", "rs", 5, "kernel_size: 1")
        + 'layer { name: "both" type: "Concat" bottom: "c" bottom: "rs" top: "both" }'
        + layer("Dropout", "d", "both", top="both") + layer("PReLU", "r", "both", top="r"))
HEAD = layer("InnerProduct", "ip", "r", 'inner_product_param { num_output: 3 weight_filler { type: "gaussian" } }'
             ) + layer("Softmax", "end", "ip")
SEVEN = INPUT.format(7) + BODY + HEAD


@pytest.fixture(params=[1, 2, 3])
def n_threads(request, monkeypatch):
    """So many threads, and a cache that is full with two images."""
    monkeypatch.setattr(per_image_parallelism, "CACHE_BYTES", 2 * 2 * 4 * 9 * 8 * 4)
    cpu.set_threads(request.param)
    yield request.param
    cpu.set_threads(1)


def runs_per_image(passes: Inference) -> bool:
    return passes._ran_per_image


@pytest.mark.parametrize("n_images", [1, 2, 6, 7, 11, 12, 48])
def test_outputs_are_those_of_the_whole_batch(n_threads, n_images):
    text = INPUT.format(n_images) + BODY + HEAD
    net = build(text)
    passes = Inference(net)
    for seed in (1, 2):
        fill(net, seed)
        passes.forward()
        agree(net.blobs["end"].data, expected(text, seed)["end"])
    assert runs_per_image(passes) or n_images in (1, 2, 7, 11) or n_threads == 1


def test_what_the_prefix_is():
    net = build(SEVEN)
    found = find_per_image_prefix(net)
    names = [net.nodes[i].name for i in found.members]
    assert names[0] == "a" and names[-1] == "r" and not {"in", "ip", "end"} & set(names)
    assert (found.x, found.ends) == ("x", ["r"])
    assert {"a", "p", "s", "both"} <= found.inner


@pytest.mark.parametrize("text", [
    layer("InnerProduct", "ip", "x", "inner_product_param { num_output: 3 }") + relu("ip"), relu("x", "y"),
    conv("a", "x", more="axis: 0 kernel_size: 1"),
    relu("x") + conv("a", "x")], ids=["no convolution", "relu alone", "axis 0", "images written over"])
def test_nets_without_a_prefix(text):
    prefix = find_per_image_prefix(build(INPUT.format(5) + text))
    assert prefix is None


def test_a_net_whose_layers_ranks_share_has_none():
    net = build(SEVEN)
    net.parts = object()
    assert find_per_image_prefix(net) is None


def test_the_prefix_ends_where_others_write_into_it():
    net = build(INPUT.format(5) + conv("a", "x") + layer("Softmax", "soft", "a", "softmax_param { axis: 0 }", top="a")
                + conv("b", "a"))
    assert [net.nodes[i].name for i in find_per_image_prefix(net).members] == ["a"]


def test_layers_that_read_the_prefix_from_its_middle(n_threads):
    aside = layer("InnerProduct", "aside", "p",
                  'inner_product_param { num_output: 2 weight_filler { type: "gaussian" } }')
    text = INPUT.format(12) + BODY.replace(conv("b", "p"), aside + conv("b", "p")) + HEAD
    net, wanted = build(text), expected(text, 4)
    passes = Inference(net)
    fill(net, 4)
    passes.forward()
    for name in ("end", "aside"):
        agree(net.blobs[name].data, wanted[name])


def test_blobs_that_are_looked_at_hold_what_they_do_in_caffe(n_threads):
    text = INPUT.format(12) + BODY + HEAD
    net, wanted = build(text), expected(text, 3)
    passes = Inference(net, shown=["p", "c"])
    fill(net, 3)
    passes.forward()
    assert not {"p", "c"} & passes.hidden
    for name in wanted.keys() - passes.hidden:
        agree(net.blobs[name].data, wanted[name])


def test_new_weights_other_memory_for_them_and_other_batches(n_threads):
    net = build(INPUT.format(12) + BODY + HEAD)
    passes = Inference(net)
    passes.forward()
    other, twice = build(INPUT.format(12) + BODY + HEAD), net.node("b").layer.blobs[0]
    for blob in (twice, other.node("b").layer.blobs[0]):
        blob.data[...] *= 2
    net.note_written()
    for n_images in (12, 6, 48, 1, 48, 12):
        for each in (net, other):
            each.blobs["x"].reshape((n_images, 4, 9, 8))
            fill(each, n_images)
        other.unfused = True
        other.forward()
        passes.forward()
        agree(net.blobs["end"].data, other.blobs["end"].data)
    third = build(INPUT.format(12) + BODY.replace("std: 0.5", "std: 0.25") + HEAD)
    net.share_trained_layers(third)
    fill(third, 9)
    fill(net, 9)
    third.unfused = True
    third.forward()
    passes.forward()
    agree(net.blobs["end"].data, third.blobs["end"].data)


def test_an_error_names_the_layer_and_the_next_pass_runs(n_threads, monkeypatch):
    net = build(INPUT.format(12) + BODY + HEAD)
    passes, forward = Inference(net), Pooling.forward

    def fail(self, bottom, top):
        if bottom[0].shape[0] < 12:
            raise LayerError("no such window")
        forward(self, bottom, top)

    with monkeypatch.context() as broken:
        broken.setattr(Pooling, "forward", fail)
        if n_threads > 1:
            with pytest.raises(UserError, match="layer 'p'.*no such window"):
                passes.forward()
    fill(net, 5)
    passes.forward()
    agree(net.blobs["end"].data, expected(INPUT.format(12) + BODY + HEAD, 5)["end"])


def test_the_number_of_threads_may_change_between_passes(n_threads):
    text = INPUT.format(12) + BODY + HEAD
    net, wanted = build(text), expected(text, 6)["end"]
    passes = Inference(net)
    fill(net, 6)
    for n in (1, 3, 2, 1, n_threads):
        cpu.set_threads(n)
        passes.forward()
        agree(net.blobs["end"].data, wanted)


@pytest.mark.parametrize(("case", "length"), [
    ((16, 2, 4), 4), ((16, 2, 100), 8), ((16, 1, 4), 4), ((16, 1, 16), 16), ((1, 2, 4), 1), ((7, 2, 4), 7),
    ((8, 2, 4), 4), ((101, 1, 4), 3), ((102, 1, 102), 102), ((50, 2, 4), 2), ((49, 2, 25), 25), ((100, 16, 40), 100),
    ((112, 16, 40), 7), ((0, 2, 4), 0)])
def test_the_length_of_a_share(case, length):
    assert images_at_once(*case) == length
