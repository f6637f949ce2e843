"""A net that has every layer with numbers to learn or windows that ranks can share, for any odd number of them."""

N_CHANNELS = 35  # for up to 7 ranks, groups too
FILLED = 'weight_filler { type: "xavier" }'
MOST = f"num_output: {N_CHANNELS} {FILLED}"
LAYERS = (
    ("conv", "Convolution", "data", "conv", f"convolution_param {{ {MOST} bias_term: false kernel_size: 3 pad: 1 }}"),
    ("norm", "BatchNorm", "conv", "conv", ""),
    ("scale", "Scale", "conv", "conv", "scale_param { bias_term: true }"),
    ("relu", "ReLU", "conv", "conv", ""),
    ("across", "LRN", "conv", "across", "lrn_param { local_size: 5 alpha: 1 }"),
    ("max", "Pooling", "across", "max", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"),
    ("drop", "Dropout", "max", "max", ""),
    ("grouped", "Convolution", "max", "grouped",
     f"convolution_param {{ {MOST} group: {N_CHANNELS} kernel_size: 3 pad: 1 }}"),
    ("within", "LRN", "grouped", "within", "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL alpha: 1 }"),
    ("sum", "Eltwise", "grouped within", "sum", "eltwise_param { coeff: 2 coeff: -1 }"),
    ("up", "Deconvolution", "sum", "up",
     f"convolution_param {{ {MOST} group: {N_CHANNELS} kernel_size: 2 stride: 2 }}"),
    ("bias", "Bias", "up", "up", 'bias_param { filler { type: "uniform" } }'),
    ("ave", "Pooling", "up", "ave", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
    ("fc1", "InnerProduct", "ave", "fc1", f"inner_product_param {{ num_output: 33 {FILLED} }}"),
    ("soft", "Softmax", "fc1", "soft", ""),  # nothing splits it
    ("fc2", "InnerProduct", "soft", "fc2", f"inner_product_param {{ num_output: 10 {FILLED} }}"))


def kinds_net(cut, n_images):
    """The prototxt, its images cut so, CHANNELS or BANDS."""
    pins = {"fc1": "INPUTS", "fc2": "OUTPUTS", "soft": "REPLICATED", "conv": "OUTPUTS" if cut == "CHANNELS" else cut}
    shapes = f"shape {{ dim: {n_images} dim: 3 dim: 20 dim: 12 }} shape {{ dim: {n_images} }}"
    layers = [f'layer {{ name: "input" type: "Input" top: "data" top: "label" input_param {{ {shapes} }} }}']
    for name, kind, bottoms, top, options in LAYERS:
        bottom = " ".join(f'bottom: "{word}"' for word in bottoms.split())
        layers.append(f'layer {{ name: "{name}" type: "{kind}" {bottom} top: "{top}" {options} '
                      f'parallel_param {{ split: {pins.get(name, cut)} }} }}')
    loss = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc2" bottom: "label" top: "loss" }'
    return "\n".join([*layers, loss])
