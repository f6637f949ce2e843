"""A short run that draws masks, with a snapshot in its middle: what tests of resuming share with their workers."""

from argparse import Namespace

import numpy as np
from google.protobuf import text_format

from scaffe.collectives.communicator import Communicator
from scaffe.proto import caffe_pb2
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import checkpoint_paths, restore_checkpoint, save_checkpoint

SAVED_AT, END = 4, 8  # passes are recorded from the third on
NET = """
layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 dim: 6 dim: 6 } shape { dim: 4 }
  data_filler { type: "uniform" min: 0 max: 1 } data_filler { type: "constant" value: 2 } } }
layer { name: "first" type: "Dropout" bottom: "x" top: "dropped" }
layer { name: "conv" type: "Convolution" bottom: "dropped" top: "conv"
  convolution_param { num_output: 5 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "pool" dropout_param { dropout_ratio: 0.3 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 4
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = 'base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: 8 random_seed: 5'


def build(folder, gpu="0", form="BINARYPROTO", precision="fp32", strategy="auto"):
    """A solver of the net above whose snapshots go to the folder."""
    param = text_format.Parse(f'{SOLVER} snapshot_prefix: "{folder}/run" snapshot_format: {form}',
                              caffe_pb2.SolverParameter())
    text_format.Parse(NET, param.net_param)
    options = Namespace(strategy=strategy, reduce="auto", wire="", bucket="auto", scal="strong", threads=1, readers=1,
                        level=0, stage="", gpu=gpu, precision=precision, tf32="off", allow_nan=False,
                        skip_bad_records=0)
    return build_solver(Communicator.world(), param, options)


def state(solver):
    """Weights, and on rank 0, which writes snapshots, histories; called by all ranks."""
    solver.strategy.synchronize_parameters()
    histories = solver.strategy.state.histories()
    arrays = [solver.net.params.data, *(histories if solver.communicator.rank == 0 else ())]
    return [np.array(solver.net.context.kernels.to_host(array)) for array in arrays]


def saved(solver):
    """Train to ``SAVED_AT`` and write a snapshot. Returns the state's file."""
    _begin(solver)
    solver.step(SAVED_AT)
    save_checkpoint(solver)
    return checkpoint_paths(solver)[1]


def train_on(solver):
    """From the snapshot to ``END``."""
    solver.step(END - SAVED_AT)


def went_on(solver, path):
    """What a run that goes on from the file ends with."""
    restore_checkpoint(solver, path)
    _begin(solver)
    train_on(solver)
    return state(solver)


def _begin(solver):
    for observer in solver.observers:
        observer.begin(solver)
