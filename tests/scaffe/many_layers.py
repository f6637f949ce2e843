"""A net with a layer of nearly every kind: all whose arithmetic is one record's own, so that ranks must agree on it."""

from __future__ import annotations

import numpy as np

N_RECORDS, BATCH, N_STEPS = 36, 12, 4
FILLED = 'weight_filler { type: "gaussian" std: 0.4 } bias_filler { type: "uniform" min: -0.2 max: 0.2 }'
FILLER = 'filler { type: "uniform" min: 0.5 max: 1.5 }'
LAYERS = [  # type, bottoms, tops, options
    ("HDF5Data", "", "x label target word sequence",
     f'hdf5_data_param {{ source: "records.txt" batch_size: {BATCH} }}'),
    ("Convolution", "x", "c1", f"convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 group: 1 {FILLED} }}"),
    ("PReLU", "c1", "c1", f"prelu_param {{ {FILLER} }}"),
    ("LRN", "c1", "n1", "lrn_param { local_size: 3 alpha: 0.5 }"),
    ("DepthwiseConvolution", "n1", "c2", f"convolution_param {{ kernel_size: 3 {FILLED} }}"),
    ("Scale", "c2", "c2", f"scale_param {{ bias_term: true {FILLER} }}"),
    ("ELU", "c2", "c2", ""),
    ("Deconvolution", "c2", "c3", f"convolution_param {{ num_output: 4 kernel_size: 2 stride: 2 group: 2 {FILLED} }}"),
    ("Normalize", "c3", "c4", f"norm_param {{ across_spatial: false channel_shared: false scale_{FILLER} }}"),
    ("ShuffleChannel", "c4", "c5", "shuffle_channel_param { group: 2 }"),
    ("Pooling", "c5", "p1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }"),
    ("Pooling", "c5", "p2", "pooling_param { pool: AVE kernel_size: 3 stride: 2 }"),
    ("Eltwise", "p1 p2", "e1", "eltwise_param { coeff: 1 coeff: -0.5 }"),
    ("Slice", "e1", "s1 s2", ""), ("Swish", "s1", "s3", ""), ("TanH", "s2", "s4", ""),
    ("Eltwise", "s3 s4", "e2", "eltwise_param { operation: PROD }"),
    ("Concat", "e1 e2", "e3", ""), ("Bias", "e3", "e3", f"bias_param {{ {FILLER} }}"),
    ("Interp", "e3", "e4", "interp_param { height: 5 width: 5 }"), ("Crop", "e4 e3", "e5", "crop_param { offset: 1 }"),
    ("MVN", "e5", "m1", "mvn_param { normalize_variance: true eps: 0.1 }"),
    ("SPP", "m1", "m2", "spp_param { pyramid_height: 2 pool: AVE }"),
    ("InnerProduct", "m2", "i1", f"inner_product_param {{ num_output: 6 transpose: true {FILLED} }}"),
    ("Embed", "word", "w1", f"embed_param {{ input_dim: 5 num_output: 6 {FILLED} }}"),
    ("Reshape", "w1", "w2", "reshape_param { shape { dim: 0 dim: -1 } }"), ("Sigmoid", "w2", "w2", ""),
    ("Eltwise", "i1 w2", "i2", ""), ("Tile", "i2", "i3", "tile_param { tiles: 2 }"),
    ("Parameter", "", "factor", "parameter_param { shape { dim: 12 } }"),
    ("Power", "factor", "f2", "power_param { shift: 1 }"),
    ("Scale", "i3 f2", "i4", "scale_param { axis: 1 }"),
    ("Permute", "sequence", "q1", "permute_param { order: 1 order: 0 order: 2 }"),
    ("Slice", "q1", "q2 q3", "slice_param { axis: 2 slice_point: 3 }"),
    ("Reshape", "q3", "q4", "reshape_param { shape { dim: 0 dim: 0 } }"),
    ("LSTM", "q2 q4", "l1", f"recurrent_param {{ num_output: 3 {FILLED} }}"),
    ("RNN", "l1 q4", "l2", f"recurrent_param {{ num_output: 2 {FILLED} }}"),
    ("Permute", "l2", "l3", "permute_param { order: 1 order: 0 order: 2 }"), ("Flatten", "l3", "l4", ""),
    ("Concat", "i4 l4", "all", ""),
    ("InnerProduct", "all", "scores", f"inner_product_param {{ num_output: 3 {FILLED} }}"),
    ("InnerProduct", "all", "bits", f"inner_product_param {{ num_output: 2 bias_term: false {FILLED} }}"),
    ("SoftmaxWithLoss", "scores label", "loss1", ""), ("HingeLoss", "scores label", "loss2", "loss_weight: 0.1"),
    ("Softmax", "scores", "prob", ""), ("MultinomialLogisticLoss", "prob label", "loss3", "loss_weight: 0.3"),
    ("SigmoidCrossEntropyLoss", "bits target", "loss4", ""), ("BNLL", "bits", "b2", ""),
    ("EuclideanLoss", "b2 target", "loss5", "loss_weight: 0.5"), ("Silence", "e4 q4", "", ""),
]
SOLVER = 'net: "many.prototxt" type: "Nesterov" momentum: 0.9 base_lr: 0.02 lr_policy: "fixed" weight_decay: 0.01 ' \
         f'max_iter: {N_STEPS} display: 0 random_seed: 5 snapshot_prefix: "many"'


def net() -> str:
    """The prototxt."""
    return "\n".join(
        f'layer {{ name: "{number:02}_{kind}" type: "{kind}" ' + " ".join(f'bottom: "{b}"' for b in bottoms.split())
        + " " + " ".join(f'top: "{t}"' for t in tops.split()) + f" {options} }}"
        for number, (kind, bottoms, tops, options) in enumerate(LAYERS))


def records() -> dict[str, np.ndarray]:
    """What the HDF5 file holds."""
    rng = np.random.RandomState(4)
    sequence = rng.randn(N_RECORDS, 3, 4)
    sequence[:, :, 3] = rng.rand(N_RECORDS, 3) < 0.7  # the last column says where a sequence goes on
    return {"x": rng.randn(N_RECORDS, 1, 6, 6), "label": rng.randint(0, 3, N_RECORDS),
            "target": rng.randint(0, 2, (N_RECORDS, 2)), "word": rng.randint(0, 5, (N_RECORDS, 1)),
            "sequence": sequence}
