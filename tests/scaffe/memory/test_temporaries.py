"""What layers make beside their blobs, in either pass, is in what a plan counts as fixed: measured by tracemalloc,
which NumPy tells of every array's memory."""

import gc
import importlib
import tracemalloc

import numpy as np
import pytest
from google.protobuf import text_format

from scaffe.data.feeds.layer_feed import Share
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TRAIN, layer_types
from scaffe.layers.base.random import Stream
from scaffe.layers.kernels import cpu
from scaffe.memory.problem.costs import unmovable_bytes
from scaffe.memory.problem.tensors import activation_tensors
from scaffe.nets.setup import Selection, make_context, make_net
from scaffe.proto import caffe_pb2
from tests import pretend
from tests.layers.large_cases import CASES, NOT_MEASURED
from tests.pretend import memory

LIKE_LSTM = ("Lstm", "RNN")
SLOW = ("Convolution3D", "ConvolutionDepthwise", "Deconvolution", "DepthwiseConvolution", "NdConvolution", *LIKE_LSTM)
"""Types whose kernels take seconds on the pretend device, and are those of Convolution and LSTM."""
SLACK = 1_650_000  # bytes: 65,536 elements as random numbers and slopes of them, an array of a row or a column


def longest_of(rig):
    """Bytes of the longest blob."""
    return max(blob.data_flat.nbytes for blob in (*rig.bottom, *rig.top))


def fresh(case, kernels):
    """A layer whose blobs have memory, which they have not before they are used."""
    rig = case.rig(np.float32, kernels)
    mine = [value for value in vars(rig.layer).values() if isinstance(value, Blob)]
    for blob in (*rig.bottom, *rig.top, *rig.layer.blobs, *mine):
        blob.data_flat[...] += blob.diff_flat
    return rig


def run(rig, case):
    """Two iterations, as a solver has them run."""
    for _ in range(2):
        for blob in rig.layer.blobs:
            blob.clear_diff()
        if rig.layer.reshape_always:
            rig.layer.reshape(rig.bottom, rig.top)
        rig.layer.forward(rig.bottom, rig.top)
        if case.gradient:
            for blob in rig.top:
                blob.diff_flat[...] = 1
            rig.layer.backward(rig.top, case.propagate_down(), rig.bottom)


def check(rig, most, left, label):
    """Compare the most bytes that two iterations made, and those that they left, with what the layer declares."""
    longest = longest_of(rig)
    assert most <= rig.layer.temporaries * longest + SLACK, label
    assert left <= rig.layer.persistent_temporaries * longest + SLACK, label


@pytest.mark.parametrize("layer_type", [pytest.param(name, marks=pytest.mark.thorough) if name in LIKE_LSTM else name
                                        for name in layer_types.names()])
def test_what_a_layer_makes_is_declared(layer_type):
    if layer_type in NOT_MEASURED:
        return
    used = []
    for case in CASES[layer_type]:
        run(case.rig(np.float32), case)  # libraries and compilers make something once
        rig = fresh(case, cpu)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        run(rig, case)
        left, most = (n_bytes - before for n_bytes in tracemalloc.get_traced_memory())
        tracemalloc.stop()
        check(rig, most, left, case.label)
        used.append(most - (rig.layer.temporaries - 2) * longest_of(rig))
    assert max(used) > 0, "declares more than it makes"


@pretend.needs_compiler
@pytest.mark.parametrize("layer_type", [pytest.param(name, marks=pytest.mark.thorough) if name in SLOW else name
                                        for name in sorted(CASES)])
def test_what_a_layer_makes_on_a_device_is_declared(layer_type, monkeypatch):
    pretend.install(monkeypatch)
    kernels = importlib.import_module("scaffe.layers.kernels.cuda")
    for case in CASES[layer_type]:
        run(case.rig(np.float32, kernels=kernels), case)  # cuBLAS's workspace
        rig = fresh(case, kernels)
        gc.collect()
        before = memory.counters.peak = memory.counters.used
        run(rig, case)
        counted = memory.counters
        grown = sum(blob.data_flat.nbytes for blob in rig.top) if rig.layer.reshape_always else 0
        check(rig, counted.peak - before - grown, counted.used - before - grown, case.label)


NET = """layer { name: "in" type: "DummyData" top: "x" top: "to" dummy_data_param {
    shape { dim: 20 dim: 30 dim: 10 dim: 10 } shape { dim: 20 dim: 30 dim: 10 dim: 10 } } }
layer { name: "a" type: "MVN" bottom: "x" top: "a" } layer { name: "b" type: "Normalize" bottom: "a" top: "b" }
layer { name: "c" type: "PReLU" bottom: "b" top: "c" }
layer { name: "one" type: "EuclideanLoss" bottom: "b" bottom: "to" top: "one" }
layer { name: "two" type: "EuclideanLoss" bottom: "c" bottom: "to" top: "two" }"""


def test_a_net_counts_what_lasts_and_the_layer_that_makes_most():
    param = text_format.Parse(NET, caffe_pb2.NetParameter())
    net = make_net(param, Selection(TRAIN), make_context(cpu, Stream(3), Share(), 3), "net")
    planned = activation_tensors(net)
    counted = unmovable_bytes(net, planned)
    for node in net.nodes:
        node.layer.temporaries = node.layer.persistent_temporaries = 0
    lasting, others = 1 + 1 + 1, 3  # of Normalize and two losses; of Normalize and PReLU alike
    assert counted - unmovable_bytes(net, planned) == (lasting + others) * 20 * 30 * 10 * 10 * 4
    net.close()
