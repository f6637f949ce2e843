"""Every mistake that Caffe 1.0's layers refuse, read off its checks.

Each was given to Caffe itself, which aborted; but for gradients of labels and indices, which its nets hardly ever ask
for, and PReLU's changed channels, where it reads beyond its memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

IMAGE = (2, 4, 5, 6)
FLAT = (2, 4)
CONV = "convolution_param { num_output: 4"
SHAPE = "shape { dim: 2 }"
IDS = np.array([0, 1.0])


@dataclass(frozen=True)
class Refusal:
    """One mistake.

    Attributes:
        prototxt: the layer.
        bottoms: their shapes (zeros then) or data.
        said: a pattern of the message.
        n_tops: None is what the layer at least makes.
        in_place: top 0 is bottom 0.
        then: other bottoms for a second forward; the first must pass.
        backward: which bottoms backward is asked for; forward must pass.
    """

    prototxt: str
    bottoms: tuple
    said: str
    n_tops: int | None = None
    in_place: bool = False
    then: tuple | None = None
    backward: tuple[bool, ...] | None = None


R = Refusal
REFUSALS = [
    # -- counts and places
    R('type: "ReLU"', (FLAT, FLAT), "takes 1 bottom"), R('type: "ReLU"', (FLAT,), "takes 1 top", n_tops=2),
    R('type: "AbsVal"', (FLAT,), "in place", in_place=True), R('type: "Flatten"', (IMAGE,), "in place", in_place=True),
    R('type: "Reshape" reshape_param { shape { dim: 0 } axis: 0 num_axes: 1 }', (IMAGE,), "in place", in_place=True),
    R('type: "Split"', (FLAT,), "in place", in_place=True),
    R('type: "Convolution" convolution_param { num_output: 1 kernel_size: 1 }', (IMAGE,) * 2, "as many tops", n_tops=1),
    R('type: "Eltwise"', (FLAT,), "at least 2"), R('type: "Crop"', (IMAGE,), "2 bottom"),
    R('type: "SoftmaxWithLoss"', (FLAT,), "2 bottom"), R('type: "EuclideanLoss"', (FLAT,), "2 bottom"),
    R('type: "ContrastiveLoss"', (FLAT, FLAT), "3 bottom"), R('type: "InfogainLoss"', (FLAT,), "2 to 3 bottom"),
    R('type: "Accuracy"', (FLAT,), "2 bottom"), R('type: "Accuracy"', (FLAT, (2,)), "1 to 2 top", n_tops=3),
    R('type: "LSTMUnit"', ((1, 2, 3), (1, 2, 12)), "3 bottom", n_tops=2),
    R('type: "Filter"', (FLAT, (2,)), "one top fewer", n_tops=2), R('type: "BatchReindex"', (FLAT,), "2 bottom"),
    R('type: "Input" input_param { shape { dim: 1 } shape { dim: 1 } }', (), "shape", n_tops=3),
    R('type: "Input"', (FLAT,), "0 bottom", n_tops=1), R('type: "Parameter"', (FLAT,), "0 bottom", n_tops=1),
    R('type: "Silence"', (FLAT,), "0 top", n_tops=1),
    # -- Accuracy, ArgMax
    R('type: "Accuracy"', (FLAT, (3,)), "one label a position"),
    R('type: "Accuracy" accuracy_param { axis: 2 }', (FLAT, (2,)), "axis 2 is out of range"),
    R('type: "ArgMax" argmax_param { top_k: 0 }', (FLAT,), "top_k"),
    R('type: "ArgMax" argmax_param { top_k: 9 }', (FLAT,), "top_k"),
    R('type: "ArgMax" argmax_param { top_k: 5 axis: 1 }', (FLAT,), "top_k"),
    R('type: "ArgMax" argmax_param { axis: 4 }', (IMAGE,), "axis"),
    # -- convolutions
    R(f'type: "Convolution" {CONV} }}', (IMAGE,), "kernel_size"),
    R(f'type: "Convolution" {CONV} kernel_size: 0 }}', (IMAGE,), "above 0"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 stride: 0 }}', (IMAGE,), "above 0"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 kernel_h: 1 kernel_w: 1 }}', (IMAGE,), "not both"),
    R(f'type: "Convolution" {CONV} kernel_h: 1 kernel_w: 1 }}', ((2, 4, 5),), "two spatial axes"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 stride: 1 stride_h: 1 stride_w: 1 }}', (IMAGE,), "not both"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 stride_h: 1 stride_w: 1 }}', ((2, 4, 5),), "two spatial axes"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 pad: 1 pad_h: 1 pad_w: 1 }}', (IMAGE,), "not both"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 pad_h: 1 pad_w: 1 }}', ((2, 4, 5),), "two spatial axes"),
    *(R(f'type: "Convolution" {CONV} kernel_size: 1 {three} }}', (IMAGE,), "given 3 times")
      for three in ("stride: 1 stride: 1 stride: 1", "pad: 1 pad: 1 pad: 1", "dilation: 1 dilation: 1 dilation: 1",
                    "kernel_size: 1 kernel_size: 1")),
    R('type: "Convolution" convolution_param { kernel_size: 1 }', (IMAGE,), "num_output"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 group: 3 }}', (IMAGE,), "group"),
    R('type: "Convolution" convolution_param { num_output: 3 kernel_size: 1 group: 2 }', (IMAGE,), "group"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 axis: 4 }}', (IMAGE,), "axis 4 is out of range"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 }}', (IMAGE, (2, 4, 5, 5)), "one shape", n_tops=2),
    R(f'type: "Convolution" {CONV} kernel_size: 1 }}', (IMAGE,), "fit the weights", then=((2, 3, 5, 6),)),
    R(f'type: "Convolution" {CONV} kernel_size: 1 }}', (IMAGE,), "axes", then=((2, 4, 5),)),
    R(f'type: "Deconvolution" {CONV} kernel_size: 1 }}', (IMAGE,), "fit the weights", then=((2, 3, 5, 6),)),
    R('type: "Deconvolution" convolution_param { num_output: 3 kernel_size: 1 group: 2 }', (IMAGE,), "group"),
    R('type: "Im2col" convolution_param { kernel_size: 1 axis: 3 }', (IMAGE,), "spatial axes"),
    R('type: "Im2col" convolution_param { }', (IMAGE,), "kernel_size"),
    R('type: "Im2col" convolution_param { kernel_h: 1 kernel_w: 1 }', ((2, 4, 5),), "two spatial axes"),
    # -- pooling
    R('type: "Pooling"', (IMAGE,), "kernel"),
    R('type: "Pooling" pooling_param { kernel_size: 0 }', (IMAGE,), "above 0"),
    R('type: "Pooling" pooling_param { kernel_h: 1 }', (IMAGE,), "kernel"),
    R('type: "Pooling" pooling_param { kernel_size: 1 kernel_h: 1 kernel_w: 1 }', (IMAGE,), "not both"),
    R('type: "Pooling" pooling_param { kernel_size: 2 pad: 1 pad_h: 1 pad_w: 1 }', (IMAGE,), "not both"),
    R('type: "Pooling" pooling_param { kernel_size: 2 pad_h: 1 }', (IMAGE,), "pad_h and pad_w"),
    R('type: "Pooling" pooling_param { kernel_size: 2 stride: 1 stride_h: 1 stride_w: 1 }', (IMAGE,), "not both"),
    R('type: "Pooling" pooling_param { kernel_size: 2 stride_w: 1 }', (IMAGE,), "stride_h and stride_w"),
    R('type: "Pooling" pooling_param { global_pooling: true kernel_size: 1 }', (IMAGE,), "global_pooling"),
    R('type: "Pooling" pooling_param { global_pooling: true pad: 1 }', (IMAGE,), "global_pooling"),
    R('type: "Pooling" pooling_param { global_pooling: true stride: 2 }', (IMAGE,), "global_pooling"),
    R('type: "Pooling" pooling_param { kernel_size: 2 pad: 2 }', (IMAGE,), "pad"),
    R('type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 2 pad: 1 }', (IMAGE,), "pad"),
    R('type: "Pooling" pooling_param { kernel_size: 2 }', ((2, 4, 5),), "four axes"),
    R('type: "Pooling" pooling_param { pool: AVE kernel_size: 2 }', (IMAGE,), "mask", n_tops=2),
    R('type: "SPP" spp_param { pyramid_height: 2 }', ((2, 4, 5),), "pyramid_height|axes"),
    # -- normalisation
    R('type: "LRN" lrn_param { local_size: 4 }', (IMAGE,), "odd"),
    R('type: "LRN"', ((2, 4, 5),), "axes"),
    R('type: "BatchNorm" param { lr_mult: 1 }', (IMAGE,), "do not learn"),
    R('type: "BatchNorm"', (IMAGE,), "channels", then=((2, 3, 5, 6),)),
    # -- products, tables, factors
    R('type: "InnerProduct" inner_product_param { num_output: 2 axis: 2 }', (FLAT,), "axis 2 is out of range"),
    R('type: "InnerProduct" inner_product_param { num_output: 2 }', ((3,),), "axis 1 is out of range"),
    R('type: "InnerProduct" inner_product_param { num_output: 2 }', (FLAT,), "inputs", then=((2, 5),)),
    R('type: "Embed" embed_param { num_output: 2 }', ((2,),), "input_dim"),
    R('type: "Embed" embed_param { input_dim: 2 }', ((2,),), "num_output"),
    R('type: "Embed" embed_param { input_dim: 2 num_output: 2 }', (IDS,), "no gradient", backward=(True,)),
    R('type: "PReLU"', ((3,),), "axes|axis"),
    R('type: "PReLU"', (IMAGE,), "channels", then=((2, 3, 5, 6),)),
    *(R(f'type: "{kind}" {kind.lower()}_param {{ {options} }}', bottoms, said)
      for kind in ("Scale", "Bias") for options, bottoms, said in (
          ("num_axes: -2", (IMAGE,), "do not fit"), ("axis: 3 num_axes: 2", (IMAGE,), "do not fit"),
          ("axis: 4", (IMAGE,), "axis"), ("axis: 2", (IMAGE, (5, 6, 1)), "fit"), ("", (IMAGE, (3,)), "fit"))),
    # -- shapes
    R('type: "Concat" concat_param { axis: 1 concat_dim: 1 }', (FLAT, FLAT), "not both"),
    R('type: "Concat" concat_param { concat_dim: 2 }', (FLAT, FLAT), "out of range"),
    R('type: "Concat" concat_param { axis: -3 }', (FLAT, FLAT), "out of range"),
    R('type: "Concat"', (FLAT, (2, 4, 1)), "one shape but"), R('type: "Concat"', (FLAT, (3, 4)), "one shape but"),
    R('type: "Slice" slice_param { axis: 1 slice_dim: 1 }', (FLAT,), "not both", n_tops=2),
    R('type: "Slice" slice_param { slice_dim: 2 }', (FLAT,), "out of range", n_tops=2),
    R('type: "Slice" slice_param { slice_point: 1 }', (FLAT,), "slice points", n_tops=3),
    R('type: "Slice" slice_param { slice_point: 2 slice_point: 1 }', (FLAT,), "slice points", n_tops=3),
    R('type: "Slice"', (FLAT,), "evenly", n_tops=3),
    R('type: "Flatten" flatten_param { axis: 5 }', (IMAGE,), "out of range"),
    R('type: "Flatten" flatten_param { axis: 3 end_axis: 1 }', (IMAGE,), "behind"),
    R('type: "Reshape" reshape_param { shape { dim: -1 dim: -1 } }', (FLAT,), "more than one -1"),
    R('type: "Reshape" reshape_param { shape { dim: 0 dim: 0 dim: 0 } }', (FLAT,), "has a 0"),
    R('type: "Reshape" reshape_param { shape { dim: 3 dim: -1 } }', (FLAT,), "infer"),
    R('type: "Reshape" reshape_param { shape { dim: 3 dim: 3 } }', (FLAT,), "elements"),
    R('type: "Reshape" reshape_param { shape { dim: 1 } axis: 3 }', (FLAT,), "out of range"),
    R('type: "Reshape" reshape_param { shape { dim: 1 } axis: -4 }', (FLAT,), "out of range"),
    R('type: "Reshape" reshape_param { shape { dim: 1 } num_axes: -2 }', (FLAT,), "out of range"),
    R('type: "Reshape" reshape_param { shape { dim: 1 } axis: 1 num_axes: 2 }', (FLAT,), "out of range"),
    R('type: "Tile"', (FLAT,), "tiles"), R('type: "Tile" tile_param { tiles: 0 }', (FLAT,), "tiles"),
    R('type: "Tile" tile_param { tiles: 2 axis: 2 }', (FLAT,), "out of range"),
    R('type: "Reduction" reduction_param { axis: 2 }', (FLAT,), "out of range"),
    R('type: "Softmax" softmax_param { axis: 2 }', (FLAT,), "out of range"),
    R('type: "Crop" crop_param { axis: 4 }', (IMAGE, IMAGE), "out of range"),
    R('type: "Crop" crop_param { offset: 1 offset: 1 offset: 1 }', (IMAGE, (2, 4, 1, 1)), "offset"),
    R('type: "Crop" crop_param { offset: 4 }', (IMAGE, (2, 4, 2, 2)), "does not fit"),
    R('type: "BatchReindex"', (FLAT, (2, 1)), "one axis"),
    R('type: "BatchReindex"', (FLAT, np.array([0, -1.0])), "index -1"),
    R('type: "BatchReindex"', (FLAT, np.array([0, 2.0])), "index 2"),
    R('type: "BatchReindex"', (FLAT, IDS), "no gradient", backward=(True, True)),
    R('type: "Filter"', (FLAT, (2, 2)), "selector"), R('type: "Filter"', (FLAT, (3,)), "selector"),
    R('type: "Filter"', (FLAT, IDS), "no gradient", backward=(True, True)),
    R('type: "Eltwise" eltwise_param { coeff: 1 }', (FLAT, FLAT), "coeff"),
    R('type: "Eltwise" eltwise_param { operation: PROD coeff: 1 coeff: 1 }', (FLAT, FLAT), "coeff"),
    R('type: "Eltwise"', (FLAT, (4, 2)), "shape"),
    # -- arithmetic
    R('type: "Exp" exp_param { base: 0 }', (FLAT,), "base"), R('type: "Exp" exp_param { base: -2 }', (FLAT,), "base"),
    R('type: "Log" log_param { base: 0 }', (FLAT,), "base"), R('type: "Log" log_param { base: 1 }', (FLAT,), "base"),
    # -- losses
    *(R(f'type: "{kind}"', (FLAT, (3,)), "label|first")
      for kind in ("SoftmaxWithLoss", "HingeLoss", "MultinomialLogisticLoss")),
    *(R(f'type: "{kind}"', (FLAT, (2, 2)), "label") for kind in ("SoftmaxWithLoss", "MultinomialLogisticLoss")),
    *(R(f'type: "{kind}"', (np.ones(FLAT), IDS), "no gradient", backward=(True, True))
      for kind in ("SoftmaxWithLoss", "HingeLoss", "MultinomialLogisticLoss")),
    R('type: "SigmoidCrossEntropyLoss"', (FLAT, FLAT), "no gradient", backward=(True, True)),
    R('type: "SigmoidCrossEntropyLoss"', (FLAT, (2, 5)), "target per prediction"),
    R('type: "SigmoidCrossEntropyLoss"', (FLAT, (4, 2)), "first"),
    R('type: "EuclideanLoss"', (FLAT, (2, 5)), "per item"), R('type: "EuclideanLoss"', (FLAT, (3, 4)), "first"),
    R('type: "ContrastiveLoss"', (FLAT, (2, 5), (2,)), "wants two"),
    R('type: "ContrastiveLoss"', (IMAGE, IMAGE, (2,)), "wants two"),
    R('type: "ContrastiveLoss"', (FLAT, FLAT, (2, 2)), "wants two"),
    R('type: "InfogainLoss"', (FLAT, (2,)), "source|matrix"),
    R('type: "InfogainLoss" loss_param { normalize: true }', (FLAT, (2,), (4, 4)), "normalization"),
    R('type: "InfogainLoss"', (FLAT, (3,), (4, 4)), "label|first"),
    R('type: "InfogainLoss"', (FLAT, (2,), (4, 3)), "matrix"),
    R('type: "InfogainLoss"', (FLAT, (2,), np.ones((4, 4))), "no gradient", backward=(True, True, False)),
    R('type: "InfogainLoss"', (FLAT, (2,), np.ones((4, 4))), "no gradient", backward=(True, False, True)),
    # -- recurrent
    *(R(f'type: "{kind}" {text}', bottoms, said, **more) for kind in ("LSTM", "RNN") for text, bottoms, said, more in (
        ("", ((3, 2, 4), (3, 2)), "num_output", {}),
        ("recurrent_param { num_output: 2 }", ((3,), (3, 2)), "shapes", {}),
        ("recurrent_param { num_output: 2 }", ((3, 2, 4), (3, 2, 1)), "shapes", {}),
        ("recurrent_param { num_output: 2 }", ((3, 2, 4), (2, 2)), "shape", {}),
        ("recurrent_param { num_output: 2 }", ((3, 2, 4), (3, 1)), "shape", {}),
        ("recurrent_param { num_output: 2 }", ((3, 2, 4), (3, 2), (3, 4)), "streams|shape", {}),
        ("recurrent_param { num_output: 2 }", ((3, 2, 4), (3, 2)), "steps", {"then": ((4, 2, 4), (4, 2))}),
        ("recurrent_param { num_output: 2 }", ((3, 2, 4), (3, 2)), "no gradient", {"backward": (True, True)}),
        ("recurrent_param { num_output: 2 expose_hidden: true }", ((3, 2, 4), (3, 2)), "bottom", {}))),
    R('type: "LSTMUnit"', ((2, 3), (1, 2, 12), (1, 2)), "axes|shape", n_tops=2),
    R('type: "LSTMUnit"', ((1, 2, 3), (1, 2, 11), (1, 2)), "shape|gates", n_tops=2),
    R('type: "LSTMUnit"', ((1, 2, 3), (1, 2, 12), (1, 3)), "shape", n_tops=2),
    R('type: "LSTMUnit"', ((1, 2, 3), (1, 2, 12), (1, 2)), "no gradient", n_tops=2, backward=(True, True, True)),
    # -- sources
    R(f'type: "DummyData" dummy_data_param {{ {SHAPE} num: 1 }}', (), "both|not", n_tops=1),
    R(f'type: "DummyData" dummy_data_param {{ {SHAPE} {SHAPE} }}', (), "shape", n_tops=3),
    R(f'type: "DummyData" dummy_data_param {{ {SHAPE} data_filler {{ }} data_filler {{ }} }}', (), "filler", n_tops=3),
    *(R('type: "DummyData" dummy_data_param { num: 1 channels: 1 height: 1 width: 1 ' + f"{name}: 1 }}", (), name,
        n_tops=3) for name in ("num", "channels", "height", "width")),
    R('type: "MemoryData" memory_data_param { batch_size: 1 channels: 1 height: 1 }', (), "width", n_tops=2),
    # -- axes that are not there (Caffe's Blob::shape), classes and items that are none, shapes that change
    *(R(f'type: "{kind}"', ((),) * 2, "one first dimension")
      for kind in ("EuclideanLoss", "L1Loss", "HingeLoss", "MultinomialLogisticLoss", "SigmoidCrossEntropyLoss",
                   "SigmoidCrossEntropyBalanceLoss", "SoftmaxWithLoss", "SmoothL1Loss", "SmoothL1LossOHEM")),
    *(R(prototxt, bottoms, f"at least {wanted}, got shapes") for prototxt, bottoms, wanted in (
        ('type: "ArgMax"', ((),), "1 axis"), ('type: "BatchNorm"', ((),), "1 axis"),
        ('type: "BatchReindex"', ((), (2,)), "1 axis"), ('type: "Filter"', (FLAT, ()), "1 axis"),
        ('type: "Filter"', ((), (2,)), "1 axis"), ('type: "ScaleRoute"', ((), FLAT), "1 axis"),
        ('type: "DecodeBBox"', ((2, 8), ()), "1 axis"), ('type: "PReLU"', ((2,),), "2 axes"),
        ('type: "Normalize"', ((2,),), "2 axes"),
        ('type: "LSTM" recurrent_param { num_output: 2 }', ((), ()), "2 axes"),
        ('type: "RNN" recurrent_param { num_output: 2 }', ((3,), (3,)), "2 axes"))),
    R('type: "Concat"', (FLAT, (2,)), "one shape but for axis 1"),
    R('type: "Concat"', (IMAGE, IMAGE[:3]), "one shape but for axis 1"),
    R('type: "ContrastiveLoss"', ((), (), ()), "one first dimension"),
    R('type: "ContrastiveLoss"', ((0, 4), (0, 4), (0,)), "at least one item"),
    *(R(f'type: "{kind}"', ((2, 0), (2,)), "at least one class")
      for kind in ("SoftmaxWithLoss", "SoftmaxWithLossOHEM", "Accuracy")),
    R('type: "InfogainLoss"', ((2, 0), (2,), (0, 0)), "at least one class"),
    R('type: "BatchNorm"', ((2, 0, 4, 5),), "at least one channel"),
    R('type: "LSTM" recurrent_param { num_output: 2 }', ((3, 0, 4), (3, 0)), "at least one step and one stream"),
    R('type: "LSTM" recurrent_param { num_output: 2 }', ((3, 2, 4), (3, 2)), "weights for 4 inputs",
      then=((3, 2, 5), (3, 2))),
    R('type: "RNN" recurrent_param { num_output: 2 }', ((3, 2, 4), (3, 2), (2, 5)), "weights for 5 inputs",
      then=((3, 2, 4), (3, 2), (2, 6))),
    R('type: "BatchNorm"', ((4,),), "at least 1 axis", then=((),)),
    R('type: "PReLU" prelu_param { channel_shared: true }', (FLAT,), "at least 2 axes", then=((2,),)),
    R('type: "Normalize" norm_param { channel_shared: true }', (FLAT,), "at least 2 axes", then=((2,),)),
    R('type: "Scale" scale_param { axis: 0 bias_term: true }', (FLAT, FLAT), r"a bias of shape \(2, 4\)",
      then=((2, 4), (2,))),
    R('type: "DecodeBBox"', ((2, 8), (2, 5), (2, 0)), "an overlap each"),
    R('type: "Interp"', (IMAGE, (1, 1, 1, 2, 2)), "at most four axes"),
    # -- fillers
    R('type: "Bias" bias_param { filler { type: "nonsense" } }', (IMAGE,), "unknown filler"),
    R('type: "Bias" bias_param { filler { type: "uniform" min: 1 max: 0 } }', (IMAGE,), "min <= max"),
    R('type: "Bias" bias_param { filler { type: "bilinear" } }', (IMAGE,), "bilinear"),
    R('type: "Bias" bias_param { filler { type: "constant" sparse: 1 } }', (IMAGE,), "sparse"),
    R('type: "Bias" bias_param { filler { type: "gaussian" std: 0 } }', (IMAGE,), "std"),
    # -- numbers beyond C's int, where Caffe's own overflow; shapes that Caffe's Blob::Reshape refuses
    R(f'type: "Convolution" {CONV} kernel_size: 3 group: 0 }}', (IMAGE,), "group 0 does not divide"),
    R(f'type: "Deconvolution" {CONV} kernel_size: 3 group: 0 }}', (IMAGE,), "group 0 does not divide"),
    *(R(f'type: "{kind}" {CONV} kernel_size: 2 {number} }}', (IMAGE,), said)
      for kind in ("Convolution", "Deconvolution", "Im2col")
      for number, said in (("stride: 2147483648", "stride must be above 0 and below 2.31"),
                           ("pad: 4294967295", "pad must be at least 0 and below 2.31"),
                           ("dilation: 4294967295", "dilation must be above 0 and below 2.31"))),
    *(R(f'type: "{kind}" {CONV} kernel_size: 4294967295 }}', (IMAGE,), "kernel_size must be above 0 and below 2.31")
      for kind in ("Convolution", "Im2col")),
    R(f'type: "Convolution" {CONV} kernel_h: 1 kernel_w: 1 pad_h: 2147483647 }}', (IMAGE,), "at most 2147483647"),
    R(f'type: "Convolution" {CONV} kernel_size: 1 pad: 1000000 }}', (IMAGE,), "at most 2147483647 elements"),
    R('type: "Pooling" pooling_param { kernel_size: 2147483648 }', (IMAGE,), "kernel_size must be above 0 and below"),
    R('type: "Pooling" pooling_param { kernel_size: 2 stride: 4294967295 }', (IMAGE,), "stride must be above 0 and"),
    R('type: "Pooling" pooling_param { kernel_size: 2147483647 pad: 2147483646 }', (IMAGE,), "at most"),
    R('type: "SPP" spp_param { pyramid_height: 4294967295 }', (IMAGE,), "kernel"),
    R('type: "Tile" tile_param { tiles: 2147483647 }', (IMAGE,), "at most 2147483647 elements"),
    R('type: "Interp" interp_param { height: 2147483647 width: 2147483647 }', (IMAGE,), "at most 2147483647 elements"),
    R('type: "Input" input_param { shape { dim: -2 dim: -3 } }', (), "at least 0", n_tops=1),
    R('type: "Input" input_param { shape { dim: 8589934592 dim: 0 } }', (), "along an axis", n_tops=1),
    R('type: "Input" input_param { shape { dim: 65536 dim: 32768 } }', (), "at most 2147483647 elements", n_tops=1),
    R(f'type: "Input" input_param {{ shape {{ {"dim: 1 " * 33} }} }}', (), "at most 32 axes", n_tops=1),
    R('type: "Parameter" parameter_param { shape { dim: -1 } }', (), "at least 0", n_tops=1),
    R('type: "DummyData" dummy_data_param { num: 4294967295 channels: 1 height: 1 width: 1 }', (), "at most", n_tops=1),
    R('type: "MemoryData" memory_data_param { batch_size: 65536 channels: 65536 height: 1 width: 1 }', (), "at most"),
    *(R(f'type: "DummyData" dummy_data_param {{ shape {{ dim: 2 }} data_filler {{ type: "uniform" {numbers} }} }}', (),
        "finite max - min", n_tops=1)
      for numbers in ("min: -inf max: 0", "min: 0 max: inf", "min: nan", "max: nan",
                      "min: 1 max: 0")),
]
