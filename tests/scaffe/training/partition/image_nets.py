"""The net of the tests on real ranks that has every layer on images that can be cut; and ways to cut it."""

from tests.scaffe.training.partition.nets import pinned

NET = """
layer {{ name: "data" type: "HDF5Data" top: "data" top: "label" hdf5_data_param {{ source: "{list}" batch_size: 24 }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1" {conv1} convolution_param {{ num_output: 8
  kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} bias_filler {{ type: "uniform" min: -0.1 max: 0.1 }} }} }}
layer {{ name: "norm" type: "BatchNorm" bottom: "conv1" top: "conv1" {norm} }}
layer {{ name: "scale" type: "Scale" bottom: "conv1" top: "conv1" {scale} scale_param {{ bias_term: true
  filler {{ type: "uniform" min: 0.5 max: 1.5 }} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "conv1" top: "conv1" {relu} }}
layer {{ name: "across" type: "LRN" bottom: "conv1" top: "across" {across} lrn_param {{ local_size: 5 alpha: 0.5 }} }}
layer {{ name: "max" type: "Pooling" bottom: "across" top: "max" {max} pooling_param {{ kernel_size: 3 stride: 2 }} }}
layer {{ name: "drop" type: "Dropout" bottom: "max" top: "max" {drop} dropout_param {{ dropout_ratio: 0.3 }} }}
layer {{ name: "grouped" type: "Convolution" bottom: "max" top: "grouped" {grouped} convolution_param {{ num_output: 16
  kernel_h: 2 kernel_w: 3 pad_h: 1 pad_w: 1 group: 4 weight_filler {{ type: "gaussian" std: 0.3 }} }} }}
layer {{ name: "prelu" type: "PReLU" bottom: "grouped" top: "grouped" {prelu} }}
layer {{ name: "ave" type: "Pooling" bottom: "grouped" top: "ave" {ave} pooling_param {{ pool: AVE kernel_size: 3
  stride: 1 pad: 1 }} }}
layer {{ name: "within" type: "LRN" bottom: "grouped" top: "within" {within} lrn_param {{ local_size: 3
  norm_region: WITHIN_CHANNEL alpha: 2 }} }}
layer {{ name: "sum" type: "Eltwise" bottom: "ave" bottom: "within" top: "sum" {sum} eltwise_param {{ coeff: 2
  coeff: -1 }} }}
layer {{ name: "slice" type: "Slice" bottom: "sum" top: "low" top: "high" {slice} slice_param {{ axis: 1
  slice_point: 7 }} }}
layer {{ name: "concat" type: "Concat" bottom: "high" bottom: "low" top: "concat" {concat} concat_param {{ axis: 1 }} }}
layer {{ name: "tall" type: "Concat" bottom: "concat" bottom: "ave" top: "tall" {tall} concat_param {{ axis: 2 }} }}
layer {{ name: "rows" type: "Slice" bottom: "tall" top: "upper" top: "lower" {rows} slice_param {{ axis: 2 }} }}
layer {{ name: "wide" type: "Concat" bottom: "lower" bottom: "upper" top: "wide" {wide} concat_param {{ axis: 3 }} }}
layer {{ name: "local" type: "LocalConvolution" bottom: "wide" top: "local" {local} local_convolution_param {{
  num_output: 3 kernel_size: 3 pad: 1 weight_filler {{ type: "xavier" }} bias_filler {{ type: "uniform" }} }} }}
layer {{ name: "up" type: "Deconvolution" bottom: "local" top: "up" {up} convolution_param {{ num_output: 5
  kernel_size: 2 stride: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "lcn" type: "LCN" bottom: "up" top: "lcn" {lcn} lcn_param {{ local_size: 3 least: 0.5 }} }}
layer {{ name: "bias" type: "Bias" bottom: "lcn" top: "lcn" {bias} bias_param {{ filler {{ type: "uniform" }} }} }}
layer {{ name: "tanh" type: "TanH" bottom: "lcn" top: "lcn" {tanh} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "lcn" top: "fc" {fc} inner_product_param {{ num_output: 10
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }}
layer {{ name: "acc" type: "Accuracy" bottom: "fc" bottom: "label" top: "acc" include {{ phase: TEST }} }}
"""
CHANNELS = {"conv1": "OUTPUTS", "local": "REPLICATED", "up": "OUTPUTS", "lcn": "REPLICATED", "fc": "INPUTS"}
BANDS = {"fc": "OUTPUTS"}
MIXED = {"grouped": "BANDS", "local": "BANDS", "up": "BANDS", "lcn": "BANDS", "tanh": "ONE_RANK", "fc": "OUTPUTS"}
SPLIT = ("conv1", "norm", "scale", "relu", "across", "max", "drop", "grouped", "prelu", "ave", "within", "sum", "slice",
         "concat", "tall", "rows", "wide", "local", "up", "lcn", "bias", "tanh", "fc")
WAYS = {"channels": dict.fromkeys(SPLIT, "CHANNELS") | CHANNELS, "bands": dict.fromkeys(SPLIT, "BANDS") | BANDS,
        "alternating": {name: ("BANDS", "CHANNELS")[i % 2] for i, name in enumerate(SPLIT)} | MIXED}


def image_net(way, source):
    """The prototxt, cut in one of the ways; "" for no pins."""
    return NET.format(list=source, **pinned(SPLIT, WAYS.get(way)))
