"""Heads of the nets that SSD's authors and MobileNet-SSD's give away: as many prior boxes, and a loss that learns."""

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.layers.base.context import Context
from scaffe.layers.base.layer import TEST, TRAIN
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.nets import graph
from scaffe.nets.build import build_net
from scaffe.proto import caffe_pb2

# (side of the map, min_size, max_size, aspect ratios) of each head; weiliu89/caffe, examples/ssd/ssd_pascal.py, and
# chuanqi305/MobileNet-SSD, deploy.prototxt
SSD300 = [(38, 30, 60, [2]), (19, 60, 111, [2, 3]), (10, 111, 162, [2, 3]), (5, 162, 213, [2, 3]), (3, 213, 264, [2]),
          (1, 264, 315, [2])]
SSD512 = [(64, 35, 76, [2]), (32, 76, 153, [2, 3]), (16, 153, 230, [2, 3]), (8, 230, 307, [2, 3]),
          (4, 307, 384, [2, 3]), (2, 384, 460, [2]), (1, 460, 537, [2])]
MOBILENET = [(19, 60, None, [2]), (10, 105, 150, [2, 3]), (5, 150, 195, [2, 3]), (3, 195, 240, [2, 3]),
             (2, 240, 285, [2, 3]), (1, 285, 300, [2, 3])]
BODY = [("conv1", "data", 8, "kernel_size: 3 pad: 1"), ("fc7", "norm", 6, "kernel_size: 3 pad: 1 stride: 2"),
        ("conv6", "fc7", 6, "kernel_size: 3 pad: 1 stride: 2"),
        ("conv7", "conv6", 6, "kernel_size: 3 pad: 1 stride: 2"),
        ("conv8", "conv7", 6, "kernel_size: 3"), ("conv9", "conv8", 6, "kernel_size: 3")]
FILLER = 'weight_filler { type: "xavier" }'
CLASSES = 21


def prior_box(bottom: str, head: tuple) -> str:
    """A PriorBox layer."""
    _, smallest, largest, ratios = head
    numbers = f"min_size: {smallest} " + (f"max_size: {largest} " if largest else "")
    numbers += " ".join(f"aspect_ratio: {r}" for r in ratios)
    return f'layer {{ name: "{bottom}_prior" type: "PriorBox" bottom: "{bottom}" bottom: "data" ' \
           f'top: "{bottom}_prior" prior_box_param {{ {numbers} flip: true clip: false ' \
           "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }\n"


def build(text: str, phase: int = TRAIN):
    """A net that runs."""
    message = graph.prepare(text_format.Parse(text, caffe_pb2.NetParameter()), phase)
    return build_net(message, Context(phase, cpu, rng=Stream(1)))


def blob(name: str, *shape: int) -> str:
    """An Input layer."""
    dims = " ".join(f"dim: {n}" for n in shape)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'


@pytest.mark.parametrize(("side", "heads", "n_boxes"), [
    (300, SSD300, 8732), (512, SSD512, 24564), (300, MOBILENET, 1917)])
def test_the_number_of_prior_boxes(side, heads, n_boxes):
    text = blob("data", 1, 3, side, side) + "".join(
        blob(f"map{i}", 1, 1, head[0], head[0]) + prior_box(f"map{i}", head) for i, head in enumerate(heads))
    priors = [f'bottom: "map{i}_prior"' for i in range(len(heads))]
    text += f'layer {{ name: "all" type: "Concat" {" ".join(priors)} top: "all" concat_param {{ axis: 2 }} }}'
    net = build(text, TEST)
    net.forward()
    assert net.blobs["all"].shape == (1, 2, 4 * n_boxes)


def ssd300() -> str:
    """SSD300's heads, conv4_3's normalized as there, on a body that is thin; its loss and its detections."""
    text = blob("data", 2, 3, 300, 300) + blob("label", 1, 1, 3, 8)
    for name, bottom, n_channels, options in BODY:
        text += f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ ' \
                f"num_output: {n_channels} {options} {FILLER} }} }}\n" \
                f'layer {{ name: "{name}_relu" type: "ReLU" bottom: "{name}" top: "{name}" }}\n'
        if name == "conv1":
            text += 'layer { name: "pool" type: "Pooling" bottom: "conv1" top: "pool" pooling_param { kernel_size: 8 ' \
                    'stride: 8 } } layer { name: "norm" type: "Normalize" bottom: "pool" top: "norm" norm_param { ' \
                    'across_spatial: false channel_shared: false scale_filler { type: "constant" value: 20 } } }\n'
    maps = ["norm", *(name for name, *_ in BODY[1:])]
    for name, head in zip(maps, SSD300, strict=True):
        n_boxes = 2 + 2 * len(head[3])
        text += prior_box(name, head)
        for kind, each in (("loc", 4), ("conf", CLASSES)):
            text += f'layer {{ name: "{name}_{kind}" type: "Convolution" bottom: "{name}" top: "{name}_{kind}" ' \
                    f"convolution_param {{ num_output: {n_boxes * each} kernel_size: 3 pad: 1 {FILLER} }} }}\n" \
                    f'layer {{ name: "{name}_{kind}_perm" type: "Permute" bottom: "{name}_{kind}" ' \
                    f'top: "{name}_{kind}_perm" permute_param {{ order: 0 order: 2 order: 3 order: 1 }} }}\n' \
                    f'layer {{ name: "{name}_{kind}_flat" type: "Flatten" bottom: "{name}_{kind}_perm" ' \
                    f'top: "{name}_{kind}_flat" }}\n'
    for kind, ending, axis in (("loc", "loc_flat", 1), ("conf", "conf_flat", 1), ("priorbox", "prior", 2)):
        bottoms = " ".join(f'bottom: "{name}_{ending}"' for name in maps)
        text += f'layer {{ name: "mbox_{kind}" type: "Concat" {bottoms} top: "mbox_{kind}" ' \
                f"concat_param {{ axis: {axis} }} }}\n"
    return text + f'''layer {{ name: "loss" type: "MultiBoxLoss" bottom: "mbox_loc" bottom: "mbox_conf"
      bottom: "mbox_priorbox" bottom: "label" top: "loss" include {{ phase: TRAIN }} propagate_down: true
      propagate_down: true propagate_down: false propagate_down: false loss_param {{ normalization: VALID }}
      multibox_loss_param {{ num_classes: {CLASSES} code_type: CENTER_SIZE }} }}
    layer {{ name: "detections" type: "DetectionOutput" bottom: "mbox_loc" bottom: "mbox_conf" bottom: "mbox_priorbox"
      top: "detections" include {{ phase: TEST }} detection_output_param {{ num_classes: {CLASSES}
      code_type: CENTER_SIZE nms_param {{ nms_threshold: 0.45 top_k: 400 }} keep_top_k: 200 }} }}'''


def test_ssd300_learns_two_images_and_detects_two_hundred_boxes_in_each():
    net, rng = build(ssd300()), np.random.default_rng(3)
    images = rng.normal(0, 1, (2, 3, 300, 300))
    net.blobs["data"].data[...] = images
    net.blobs["label"].data[...] = np.reshape([[0, 3, 0, 0.1, 0.2, 0.4, 0.6, 0], [0, 7, 0, 0.5, 0.5, 0.9, 0.95, 0],
                                               [1, 20, 0, 0.0, 0.3, 0.9, 0.8, 0]], (1, 1, 3, 8))
    losses = []
    for _ in range(4):
        net.clear_param_diffs()
        losses.append(net.forward_backward())
        assert all(net.node(name).layer.blobs[0].diff.any() for name in ("conv1", "norm", "norm_conf"))
        for param in net.params.params:
            param.blob.data[...] -= 0.002 * param.blob.diff
    assert losses[-1] < 0.9 * losses[0]
    tested = build(ssd300(), TEST)
    tested.blobs["data"].data[...] = images
    tested.forward()
    assert tested.blobs["detections"].shape == (1, 1, 400, 7)
