"""The net of the tests on real ranks: branches, sums, masks, two losses, transposed weights; and ways to share it."""

NET = """
layer {{ name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param {{ source: "{list}" batch_size: 24 }} }}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv" param {{ }} param {{ lr_mult: 2 }}
  convolution_param {{ num_output: 5 kernel_size: 3 weight_filler {{ type: "xavier" }}
  bias_filler {{ type: "constant" value: 0.1 }} }} }}
layer {{ name: "relu0" type: "ReLU" bottom: "conv" top: "conv" }}
layer {{ name: "drop0" type: "Dropout" bottom: "conv" top: "conv" dropout_param {{ dropout_ratio: 0.3 }} }}
layer {{ name: "fc1" type: "InnerProduct" bottom: "conv" top: "fc1" {fc1} param {{ }}
  param {{ lr_mult: 2 decay_mult: 0 }} inner_product_param {{ num_output: 37
  weight_filler {{ type: "gaussian" std: 0.2 }} }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "fc1" top: "fc1" {relu1} }}
layer {{ name: "drop1" type: "Dropout" bottom: "fc1" top: "fc1" {drop1} }}
layer {{ name: "fc2" type: "InnerProduct" bottom: "fc1" top: "fc2" {fc2} inner_product_param {{ num_output: 29
  transpose: true weight_filler {{ type: "xavier" }} bias_filler {{ type: "uniform" min: -1 max: 1 }} }} }}
layer {{ name: "side" type: "InnerProduct" bottom: "fc1" top: "side" {side} inner_product_param {{ num_output: 29
  bias_term: false weight_filler {{ type: "msra" }} }} }}
layer {{ name: "sum" type: "Eltwise" bottom: "fc2" bottom: "side" top: "sum" {sum} }}
layer {{ name: "tanh" type: "TanH" bottom: "sum" top: "tanh" {tanh} }}
layer {{ name: "cut" type: "Slice" bottom: "tanh" top: "left" top: "right" {cut} slice_param {{ slice_point: 8 }} }}
layer {{ name: "join" type: "Concat" bottom: "right" bottom: "left" bottom: "fc1" top: "join" {join} }}
layer {{ name: "fc3" type: "InnerProduct" bottom: "join" top: "fc3" {fc3} inner_product_param {{ num_output: 10
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "fc3" bottom: "label" top: "loss" {loss} }}
layer {{ name: "aux" type: "InnerProduct" bottom: "conv" top: "aux" inner_product_param {{ num_output: 10
  weight_filler {{ type: "xavier" }} }} {aux} }}
layer {{ name: "auxloss" type: "SoftmaxWithLoss" bottom: "aux" bottom: "label" top: "auxloss" loss_weight: 0.3
  parallel_param {{ split: REPLICATED }} }}
layer {{ name: "acc" type: "Accuracy" bottom: "fc3" bottom: "label" top: "acc" include {{ phase: TEST }} }}
"""
SOLVER = """base_lr: 0.05 momentum: 0.9 weight_decay: 0.001 lr_policy: "step" gamma: 0.5 stepsize: 3 max_iter: 8
iter_size: 2 test_iter: 3 test_interval: 100 random_seed: 6 snapshot_prefix: "{prefix}" """
SPLIT = ("fc1", "relu1", "drop1", "fc2", "side", "sum", "tanh", "cut", "join", "fc3", "loss", "aux")
WAYS = {
    "outputs": {"fc1": "OUTPUTS", "relu1": "COLUMNS", "drop1": "COLUMNS", "fc2": "OUTPUTS", "side": "OUTPUTS",
                "sum": "COLUMNS", "tanh": "COLUMNS", "cut": "COLUMNS", "join": "COLUMNS", "fc3": "OUTPUTS",
                "loss": "CLASSES", "aux": "REPLICATED"},
    "inputs": {"fc1": "INPUTS", "relu1": "REPLICATED", "drop1": "REPLICATED", "fc2": "INPUTS", "side": "INPUTS",
               "sum": "REPLICATED", "tanh": "REPLICATED", "cut": "REPLICATED", "join": "COLUMNS", "fc3": "INPUTS",
               "loss": "REPLICATED", "aux": "ONE_RANK"},
    "mixed": {"fc1": "OUTPUTS", "relu1": "REPLICATED", "drop1": "COLUMNS", "fc2": "INPUTS", "side": "OUTPUTS",
              "sum": "COLUMNS", "tanh": "ONE_RANK", "cut": "COLUMNS", "join": "REPLICATED", "fc3": "ONE_RANK",
              "loss": "CLASSES", "aux": "REPLICATED"},
    "planned": {"fc1": "OUTPUTS partitions: 4"},
}


def net(way, source):
    """The prototxt, shared in one of the ways; "" for no pins."""
    return NET.format(list=source, **pinned(SPLIT, WAYS.get(way)))


def pinned(names, kinds):
    """Layer → its parallel_param, as text, AUTO where it has no kind; none where there are no kinds."""
    return {name: f"parallel_param {{ split: {kinds.get(name, 'AUTO')} }}" if kinds else "" for name in names}
