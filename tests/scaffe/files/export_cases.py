"""Nets of one layer, one of each type that can be exported, with their inputs."""

import numpy as np

X, FILL = (2, 4, 9, 7), 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -1 max: 1 }'
WINDOWS = ("kernel_size: 3 pad: 1 stride: 2", "kernel_h: 3 kernel_w: 2 pad_h: 1 stride_h: 2 stride_w: 1",
           "kernel_size: 2 dilation: 2 group: 2", "kernel_size: 3 bias_term: false")
CASES = {  # type: options, and the bottoms' shapes (X unless given)
    "Input": [""], "Split": [""], "Silence": [""],
    "Dropout": ["dropout_param { dropout_ratio: 0.3 }", "dropout_param { dropout_ratio: 0.3 scale_train: false }"],
    "Sigmoid": [""], "TanH": [""], "AbsVal": [""], "BNLL": [""], "ELU": ["elu_param { alpha: 0.5 }"],
    "ReLU": ["", "relu_param { negative_slope: 0.1 }"], "ReLU6": [""],
    "PReLU": ["prelu_param { filler { type: 'uniform' } }", "prelu_param { channel_shared: true }"],
    "Clip": ["clip_param { min: -0.5 max: 0.25 }"], "Swish": ["", "swish_param { beta: 2 }"],
    "Threshold": ["threshold_param { threshold: 0.2 }"],
    "Exp": ["", "exp_param { base: 2 scale: 0.5 shift: 1 }"],
    "Log": [("log_param { shift: 9 }", X), ("log_param { base: 10 scale: 0.5 shift: 8 }", X)],
    "Power": ["power_param { power: 2 scale: 0.5 shift: 1 }"],
    "Softmax": ["", "softmax_param { axis: 2 }", "softmax_param { axis: -1 }"],
    "Convolution": [f"convolution_param {{ num_output: 6 {window} {FILL} }}" for window in WINDOWS],
    "Deconvolution": [f"convolution_param {{ num_output: 6 {window} {FILL} }}" for window in WINDOWS],
    "DepthwiseConvolution": [f"convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 {FILL} }}"],
    "ConvolutionDepthwise": [f"convolution_param {{ num_output: 4 kernel_size: 3 stride: 2 {FILL} }}"],
    "InnerProduct": [f"inner_product_param {{ num_output: 5 {more} {FILL} }}" for more in
                     ("", "transpose: true", "axis: 2", "bias_term: false")],
    "Pooling": [f"pooling_param {{ pool: {kind} {window} }}" for kind in ("MAX", "AVE") for window in
                ("kernel_size: 3 stride: 2", "kernel_size: 3 stride: 2 pad: 1", "kernel_h: 3 kernel_w: 2 stride: 2",
                 "global_pooling: true")],
    "LRN": ["lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 k: 2 }",
            "lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 norm_region: WITHIN_CHANNEL }"],
    "BatchNorm": ["", "batch_norm_param { eps: 0.1 }"],
    "Scale": ["scale_param { bias_term: true filler { type: 'uniform' } }", "scale_param { axis: 2 num_axes: 2 }",
              ("scale_param { axis: 1 }", X, (4,))],
    "Bias": ["bias_param { filler { type: 'uniform' } }", ("bias_param { axis: 0 }", X, (2, 4))],
    "Eltwise": [(f"eltwise_param {{ {options} }}", X, X, X) for options in
                ("", "operation: PROD", "operation: MAX", "coeff: 1 coeff: -2 coeff: 0.5")],
    "Concat": [("", X, (2, 3, 9, 7)), ("concat_param { axis: 3 }", X, (2, 4, 9, 1)),
               ("concat_param { concat_dim: 0 }", X, X)],
    "Slice": ["slice_param { axis: 1 }", "slice_param { axis: 2 slice_point: 4 }"],
    "Flatten": ["", "flatten_param { axis: 1 end_axis: 2 }"],
    "Reshape": ["reshape_param { shape { dim: 0 dim: -1 dim: 3 } }"],
    "Crop": [("crop_param { axis: 2 offset: 2 }", X, (2, 4, 5, 4)),
             ("crop_param { offset: 3 offset: 1 }", X, (1, 1, 5, 4))],
    "Tile": ["tile_param { axis: 2 tiles: 3 }"], "Permute": ["permute_param { order: 0 order: 2 order: 3 order: 1 }"],
    "ShuffleChannel": ["shuffle_channel_param { group: 2 }"],
    "Reduction": [f"reduction_param {{ operation: {kind} axis: {axis} coeff: 0.5 }}" for kind, axis in
                  (("SUM", 0), ("SUM", 2), ("ASUM", 1), ("SUMSQ", -1), ("MEAN", 2))],
    "Embed": [(f"embed_param {{ num_output: 3 input_dim: 20 {more} {FILL} }}", (2, 5)) for more in
              ("", "bias_term: false")],
    "ArgMax": [f"argmax_param {{ {options} }}" for options in
               ("axis: 1 top_k: 2", "axis: 2 out_max_val: true", "top_k: 3", "out_max_val: true top_k: 2")],
    "MVN": ["", "mvn_param { across_channels: true }", "mvn_param { normalize_variance: false }"],
    "Normalize": ["", "norm_param { across_spatial: false channel_shared: false "
                      "scale_filler { type: 'constant' value: 3 } }"],
    "Axpy": [("", (2, 4, 1, 1), X, X)],
    "Interp": ["interp_param { height: 5 width: 13 }", "interp_param { zoom_factor: 2 }"],
}
N_TOPS = {"Split": 2, "Slice": 2, "Silence": 0}
ALL = [(kind, case if isinstance(case, tuple) else (case, X)) for kind, cases in CASES.items() for case in cases]


def prototxt(kind, options, shapes, in_place=False):
    """A net of one layer."""
    text = [f'layer {{ name: "in{i}" type: "Input" top: "b{i}" input_param {{ shape {{ '
            + " ".join(f"dim: {n}" for n in shape) + " } } }" for i, shape in enumerate(shapes)]
    if kind in ("Input", "Silence"):
        text.append('layer { name: "copy" type: "AbsVal" bottom: "b0" top: "copy" }')
    if kind != "Input":
        bottoms = "".join(f' bottom: "b{i}"' for i in range(len(shapes)))
        tops = ' top: "b0"' if in_place else "".join(f' top: "t{i}"' for i in range(N_TOPS.get(kind, 1)))
        text.append(f'layer {{ name: "layer" type: "{kind}"{bottoms}{tops} {options} }}')
    return "\n".join(text)


def values_of(kind, shapes):
    """Random inputs; indices for Embed."""
    rng = np.random.default_rng(7)
    values = {f"b{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    if kind == "Embed":
        values["b0"] = rng.integers(0, 20, shapes[0]).astype(np.float32)
    return values


def with_statistics(net):
    """Give the layer's batch norm means, variances and their factor."""
    if "layer" in net.params and net.layer_dict["layer"].type == "BatchNorm":
        for blob, value in zip(net.params["layer"], (0.2, 3.0, 2.0)):
            blob.data[...] = value + 0.1 * np.arange(blob.count) * (blob.count > 1)
    return net
