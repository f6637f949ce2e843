"""A layer of the test net alone that shares parameters by name reads what is being trained."""

from argparse import Namespace

import numpy as np
from google.protobuf import text_format

from scaffe.collectives.communicator import Communicator
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver

SOLVER = 'base_lr: 0.1 lr_policy: "fixed" max_iter: 2 random_seed: 5 test_iter: 1 test_interval: 100'
NET = """layer { name: "in" type: "DummyData" top: "x" top: "t" dummy_data_param {
  shape { dim: 4 dim: 5 } shape { dim: 4 dim: 3 }
  data_filler { type: "constant" value: 1 } data_filler { type: "constant" value: 2 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" }
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "b" type: "InnerProduct" bottom: "x" top: "b" include { phase: TEST } param { name: "w" }
  inner_product_param { num_output: 3 bias_term: false } }
layer { name: "ignored" type: "Silence" bottom: "b" include { phase: TEST } }
layer { name: "loss" type: "EuclideanLoss" bottom: "a" bottom: "t" top: "loss" }"""


def test_a_layer_of_the_test_net_alone_reads_trained_parameters():
    param = text_format.Parse(SOLVER, caffe_pb2.SolverParameter())
    text_format.Parse(NET, param.net_param)
    solver = build_solver(Communicator.single(), param, Namespace(
        strategy="auto", reduce="auto", allow_nan=False, threads=1, readers=1, stage="", level=0, scal="strong",
        gpu="", tf32="off"))
    before = solver.net.node("a").layer.blobs[0].data.copy()
    solver.step(2)
    trained, read = (net.node(name).layer.blobs[0].data
                     for net, name in ((solver.net, "a"), (solver.test_nets[0], "b")))
    assert not np.array_equal(before, trained)
    assert np.array_equal(read, trained)
    assert solver.test_nets[0].own_blobs == []
