"""What layers make beside their blobs, in either pass, is in what a plan counts as fixed: measured by tracemalloc,
which NumPy tells of every array's memory."""

import tracemalloc

import pytest
from google.protobuf import text_format

from scaffe.data.feeds.layer_feed import Share
from scaffe.layers.base.layer import TRAIN
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.nets.memory.fixed import fixed_bytes
from scaffe.nets.memory.parts import planned_arrays
from scaffe.nets.setup import Selection, make_context, make_net
from scaffe.proto import caffe_pb2

ROWS, COLUMNS = 4001, 603
SLACK = 1_600_000  # bytes: 65,536 elements as random numbers and slopes of them, an array of a row or a column
BINARY, LABELS = 'type: "constant" value: 1', 'type: "constant" value: 3'
PAIRS = f"shape {{ dim: {ROWS} dim: {COLUMNS} }} shape {{ dim: {ROWS} dim: {COLUMNS} }}"
LABELLED = f"shape {{ dim: {ROWS} dim: {COLUMNS} }} shape {{ dim: {ROWS} }}"
THIRD = f"shape {{ dim: {ROWS} dim: {COLUMNS} }} shape {{ dim: {ROWS} dim: {COLUMNS} }} shape {{ dim: {ROWS} }}"
GAINS = f"shape {{ dim: {ROWS} dim: {COLUMNS} }} shape {{ dim: {ROWS} }} shape {{ dim: {COLUMNS} dim: {COLUMNS} }}"
IMAGES = "shape { dim: 6 dim: 5 dim: 301 dim: 299 }"

LOSSES = {
    "EuclideanLoss": (PAIRS, BINARY, ""), "L1Loss": (PAIRS, BINARY, ""), "SmoothL1Loss": (PAIRS, BINARY, ""),
    "HingeLoss": (LABELLED, LABELS, ""), "HingeLoss L2": (LABELLED, LABELS, "hinge_loss_param { norm: L2 }"),
    "MultinomialLogisticLoss": (LABELLED, LABELS, ""),
    "ContrastiveLoss": (THIRD, BINARY, ""), "SigmoidCrossEntropyLoss": (PAIRS, BINARY, ""),
    "SigmoidCrossEntropyLoss ignore": (PAIRS, BINARY, "loss_param { ignore_label: 7 }"),
    "SigmoidCrossEntropyBalanceLoss": (PAIRS, BINARY, ""), "InfogainLoss": (GAINS, LABELS, ""),
    "CenterLoss": (LABELLED, LABELS, "center_loss_param { num_output: 9 }"),
}
OTHERS = {
    "Insanity": "", "Pooling": "pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 1 }", "MVN": "", "PReLU": "",
    "MVN across": "mvn_param { across_channels: true }", "Normalize": "", "LCN": "",
    "Interp": "interp_param { zoom_factor: 2 }", "Reduction": "reduction_param { operation: SUM axis: 1 }",
    "Reduction |x|": "reduction_param { operation: ASUM axis: 1 }",
    "Reduction x^2": "reduction_param { operation: SUMSQ axis: 1 }", "SPP": "spp_param { pyramid_height: 2 }",
    "LRN": "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 }",
}
CASES = {**LOSSES, **{kind: (IMAGES, "", text) for kind, text in OTHERS.items()}}


def net_of(kind, shapes, target, text):
    name = kind.split()[0]
    bottoms = [f"x{i}" for i in range(shapes.count("shape"))]
    fillers = ['type: "constant" value: 0.5', *[target] * (len(bottoms) - 1)]
    lines = [f'layer {{ name: "in" type: "DummyData" {" ".join(f"top: {b!r}" for b in bottoms)} dummy_data_param {{ '
             f'{shapes} {" ".join(f"data_filler {{ {each} }}" for each in fillers)} }} }}',
             'layer { name: "scaled" type: "Scale" bottom: "x0" top: "x" }',
             f'layer {{ name: "it" type: "{name}" bottom: "x" {" ".join(f"bottom: {b!r}" for b in bottoms[1:])} '
             f'top: "y" {text} }}']
    if len(bottoms) == 1:
        lines.append('layer { name: "sum" type: "Reduction" bottom: "y" top: "sum" loss_weight: 1 }')
    param = text_format.Parse("\n".join(lines).replace("'", '"'), caffe_pb2.NetParameter())
    return make_net(param, Selection(TRAIN), make_context(cpu, Stream(3), Share(), 3), "net")


def peak_of(net):
    """Bytes beside what is there before, at most, in two iterations after a first one for libraries and compilers."""
    for blob in net.blobs.values():
        assert blob.data_flat.nbytes == blob.diff_flat.nbytes  # which have no memory before they are used
    net.reshape()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(2):
        net.clear_param_diffs()
        net.forward_backward()
    found = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return found


@pytest.mark.parametrize("kind", CASES)
def test_temporaries_are_counted(kind):
    given = CASES[kind]
    net_of(kind, *given).forward_backward()
    net = net_of(kind, *given)
    planned = planned_arrays(net)
    counted = fixed_bytes(net, planned)
    node = net.nodes[2]
    node.layer.temporaries = 0
    made = counted - fixed_bytes(net, planned)
    assert made - 4 * max(blob.n_elems for blob in (*node.bottoms, *node.tops)) < peak_of(net) <= made + SLACK
    net.close()
