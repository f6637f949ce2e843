"""Cases of every layer type that are long enough for what a layer makes in passes to show beside its blobs."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

ROWS, COLUMNS = 2001, 603
N, P, CLASSES = 4, 8000, 21
IMAGE, CLIP = (3, 4, 301, 299), (2, 4, 11, 101, 97)
FILL = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" }'
KERNEL = f"num_output: 4 kernel_size: 3 {FILL}"
SPAN = "kernel_shape { dim: 2 dim: 3 dim: 3 }"
LSTM = f"num_output: 120 {FILL}"


def of(text: str, *bottoms, gradient=(0,), label: str = "", **more) -> Case:
    """A case; its first bottom alone has a gradient, unless others are named."""
    return Case(text, bottoms, gradient=gradient, label=label, **more)


def labels(*shape: int, n: int = 3) -> np.ndarray:
    """Classes, one after another."""
    return np.arange(np.prod(shape), dtype=float).reshape(shape) % n


def boxes(n: int) -> np.ndarray:
    """(n, 4) in the unit square."""
    corner = spread((n, 2), 0, 0.7, seed=8)
    return np.concatenate([corner, corner + spread((n, 2), 0.05, 0.3, seed=9)], axis=1)


def regions(n: int, n_items: int, size: float) -> np.ndarray:
    """(n, 5): an item and a box in pixels."""
    return np.concatenate([labels(n, 1, n=n_items), size * boxes(n)], axis=1)


MATRIX, LABELS = (ROWS, COLUMNS), labels(ROWS)
PAIR = spread(MATRIX, seed=1), spread(MATRIX, seed=2)
PRIORS = np.stack([boxes(P).ravel(), np.tile([0.1, 0.1, 0.2, 0.2], P)])[None]
TRUTH = np.concatenate([np.sort(labels(8 * N, 1, n=N), axis=0), 1 + labels(8 * N, 1, n=CLASSES - 1),
                        np.zeros((8 * N, 1)), boxes(8 * N), np.zeros((8 * N, 1))], axis=1)[None, None]
OFFSETS, SCORES = spread((N, P * 4), -0.3, 0.3), spread((N, P * CLASSES), 0, 1)
IGNORED, HINGE = "loss_param { ignore_label: 7 }", "hinge_loss_param { norm: L2 }"
SEQUENCES, ON = (40, 300, 100), np.ones((40, 300))
RECURRENT = f"recurrent_param {{ num_output: 100 {FILL} }}"
ANCHORS, MASK = " ".join(f"biases: {0.7 + i}" for i in range(10)), " ".join(f"mask: {i}" for i in range(5))
REGION = f"num_class: 20 num: 5 {ANCHORS}"
FOUND = f"num_classes: 20 num_box: 5 confidence_threshold: 0.9 nms_threshold: 0.4 {ANCHORS}"
OBJECTS = np.concatenate([labels(4, 1, 30, 1, n=20), boxes(120).reshape(4, 1, 30, 4)], axis=-1)
YOLO = (4, 125, 52, 52)
BY_BOX = "bbox_reg_param { cls_aware: false " + \
    "bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 bbox_mean: 0 bbox_std: 1 bbox_std: 1 bbox_std: 1 bbox_std: 1 }"
GROUPS = "fg_thr: 0.3 iou_thr: 0.4 min_size: 3 max_nms_num: 300 max_post_nms_num: 60 field_whr: 3 field_xyr: 1.5 " + \
    'nms_type: "IOU" box_group_param { field_w: 8 field_h: 6 stride: 4 }'
GRID = "stride: 4 image_size_x: 400 image_size_y: 300 object_class { src: 1 dst: 0 }"
BOXED = np.zeros((3, 1, 2, 16))
BOXED[:, 0, 0, :2], BOXED[:, 0, 1, :6] = [1, 16], [30, 20, 170, 150, 0, 1]

CASES: dict[str, list[Case]] = {
    **{name: [of(f'type: "{name}"', IMAGE)] for name in (
        "AbsVal", "BNLL", "ELU", "Exp", "Flatten", "Dropout", "Insanity", "LCN", "Normalize", "PReLU", "Power", "ReLU",
        "ReLU6", "Sigmoid", "Silence", "Swish", "TanH")},
    "Softmax": [of('type: "Softmax"', (203, 6007))],
    "Log": [of('type: "Log"', spread(IMAGE, 0.5, 2))],
    "Threshold": [of('type: "Threshold"', IMAGE, gradient=())],
    "Upsample": [of('type: "Upsample"', (3, 4, 150, 149)),
                 of('type: "Upsample"', (3, 4, 150, 149), labels(3, 4, 150, 149, n=200 * 149), label="mask")],
    "Clip": [of('type: "Clip" clip_param { min: -0.5 max: 0.5 }', IMAGE)],
    "BatchNorm": [of('type: "BatchNorm"', IMAGE), of('type: "BatchNorm"', IMAGE, in_place=True, label="in place")],
    "BN": [of(f'type: "BN" bn_param {{ {each} }}', IMAGE, label=each)
           for each in ("", 'slope_filler { type: "uniform" }')],
    "Bias": [of('type: "Bias"', IMAGE)],
    "Scale": [of('type: "Scale" scale_param { bias_term: true }', IMAGE),
              of('type: "Scale" scale_param { axis: 0 }', MATRIX, (ROWS,), gradient=(0, 1), label="two bottoms")],
    "MVN": [of(f'type: "MVN" mvn_param {{ {each} }}', IMAGE, label=each) for each in ("", "across_channels: true")],
    "LRN": [of(f'type: "LRN" lrn_param {{ norm_region: {each} local_size: 3 }}', IMAGE, label=each)
            for each in ("WITHIN_CHANNEL", "ACROSS_CHANNELS")],
    "Pooling": [of(f'type: "Pooling" pooling_param {{ pool: {each} kernel_size: 2 stride: 1 }}', spread(IMAGE, 0, 1),
                   label=each) for each in ("MAX", "AVE", "STOCHASTIC")],
    "Pooling3D": [of('type: "Pooling3D" pooling3d_param { kernel_size: 2 kernel_depth: 2 }', CLIP)],
    "NdPooling": [of(f'type: "NdPooling" pooling_param {{ pool: {each} {SPAN} }}', CLIP, label=each)
                  for each in ("MAX", "AVE")],
    "SPP": [of('type: "SPP" spp_param { pyramid_height: 2 }', IMAGE)],
    "Interp": [of('type: "Interp" interp_param { zoom_factor: 2 }', IMAGE)],
    "Im2col": [of('type: "Im2col" convolution_param { kernel_size: 3 pad: 1 }', IMAGE)],
    "Crop": [of('type: "Crop"', IMAGE, (3, 4, 290, 290))],
    "MergeCrop": [of('type: "MergeCrop"', IMAGE, (3, 4, 310, 310), gradient=(0, 1))],
    "Reorg": [of('type: "Reorg" reorg_param { stride: 2 }', (3, 4, 300, 300))],
    "Convolution": [of(f'type: "Convolution" convolution_param {{ {KERNEL} }}', IMAGE)],
    "Deconvolution": [of(f'type: "Deconvolution" convolution_param {{ {KERNEL} }}', IMAGE)],
    "DepthwiseConvolution": [of(f'type: "DepthwiseConvolution" convolution_param {{ kernel_size: 3 {FILL} }}', IMAGE)],
    "ConvolutionDepthwise": [of(f'type: "ConvolutionDepthwise" convolution_param {{ kernel_size: 3 {FILL} }}', IMAGE)],
    "LocalConvolution": [of(f'type: "LocalConvolution" local_convolution_param {{ {KERNEL} }}', (30, 4, 61, 63))],
    "Convolution3D": [of(f'type: "Convolution3D" convolution3d_param {{ {KERNEL} kernel_depth: 2 }}', CLIP)],
    "NdConvolution": [of(f'type: "NdConvolution" convolution_param {{ num_output: 4 {SPAN} {FILL} }}', CLIP)],
    "InnerProduct": [of(f'type: "InnerProduct" inner_product_param {{ num_output: 600 {FILL} }}', MATRIX)],
    "MarginInnerProduct": [of('type: "MarginInnerProduct" margin_inner_product_param { num_output: 600 '
                              'weight_filler { type: "xavier" } }', MATRIX, LABELS)],
    "Embed": [of('type: "Embed" embed_param { num_output: 600 input_dim: 700 weight_filler { type: "xavier" } }',
                 LABELS, gradient=())],
    "Concat": [of('type: "Concat"', IMAGE, IMAGE, gradient=(0, 1))],
    "Slice": [of('type: "Slice"', IMAGE, n_tops=2)],
    "Split": [of('type: "Split"', IMAGE, n_tops=2)],
    "Eltwise": [of(f'type: "Eltwise" eltwise_param {{ operation: {each} }}', *[spread(IMAGE, seed=i) for i in range(3)],
                   gradient=(0, 1, 2), label=each) for each in ("SUM", "PROD", "MAX")],
    "Reshape": [of('type: "Reshape" reshape_param { shape { dim: 0 dim: -1 } }', IMAGE)],
    "Tile": [of('type: "Tile" tile_param { tiles: 3 }', IMAGE)],
    "Permute": [of('type: "Permute" permute_param { order: 0 order: 2 order: 3 order: 1 }', IMAGE)],
    "Transpose": [of('type: "Transpose" transpose_param { dim: 3 dim: 2 dim: 0 dim: 1 }', IMAGE)],
    "ShuffleChannel": [of('type: "ShuffleChannel" shuffle_channel_param { group: 2 }', IMAGE)],
    "Flip": [of('type: "Flip"', IMAGE)],
    "Reverse": [of('type: "Reverse"', IMAGE)],
    "ReverseTime": [of('type: "ReverseTime"', SEQUENCES, np.full(300, 25.0))],
    "Reduction": [of(f'type: "Reduction" reduction_param {{ operation: {each} axis: 1 }}', IMAGE, label=each)
                  for each in ("SUM", "ASUM", "SUMSQ", "MEAN")],
    "ArgMax": [of(f'type: "ArgMax" argmax_param {{ {each} }}', IMAGE, gradient=(), label=each)
               for each in ("top_k: 3", "axis: 1", "out_max_val: true")],
    "BatchReindex": [of('type: "BatchReindex"', IMAGE, np.array([2.0, 0, 2]))],
    "Filter": [of('type: "Filter"', IMAGE, np.array([1.0, 0, 1]))],
    "Axpy": [of('type: "Axpy"', (3, 4), IMAGE, IMAGE, gradient=(0, 1, 2))],
    "BroadcastMul": [of('type: "BroadcastMul"', IMAGE, (3, 4, 1, 1), gradient=(0, 1))],
    "MaskPooling": [of('type: "MaskPooling"', IMAGE, (3, 1, 301, 299), gradient=(0, 1))],
    "EuclideanLoss": [of('type: "EuclideanLoss"', *PAIR, gradient=(0, 1))],
    "L1Loss": [of('type: "L1Loss"', *PAIR, gradient=(0, 1))],
    "SmoothL1Loss": [of('type: "SmoothL1Loss"', *PAIR, gradient=(0, 1)),
                     of('type: "SmoothL1Loss"', *PAIR, *PAIR, gradient=(0, 1), label="weighted")],
    "SmoothL1LossOHEM": [of('type: "SmoothL1LossOHEM"', *PAIR, PAIR[0], gradient=(0, 1), n_tops=2)],
    "HingeLoss": [of(f'type: "HingeLoss" {each}', MATRIX, LABELS, label=each) for each in ("", HINGE)],
    "MultinomialLogisticLoss": [of('type: "MultinomialLogisticLoss"', spread(MATRIX, 0.1, 0.9), LABELS)],
    "ContrastiveLoss": [of('type: "ContrastiveLoss"', *PAIR, labels(ROWS, n=2), gradient=(0, 1))],
    "SigmoidCrossEntropyLoss": [of(f'type: "SigmoidCrossEntropyLoss" {each}', MATRIX, labels(*MATRIX, n=2), label=each)
                                for each in ("", IGNORED)],
    "SigmoidCrossEntropyBalanceLoss": [of('type: "SigmoidCrossEntropyBalanceLoss"', IMAGE, labels(*IMAGE, n=2))],
    "InfogainLoss": [of('type: "InfogainLoss"', MATRIX, LABELS, (COLUMNS, COLUMNS))],
    "CenterLoss": [of('type: "CenterLoss" center_loss_param { num_output: 9 }', MATRIX, LABELS)],
    "SoftmaxWithLoss": [of(f'type: "SoftmaxWithLoss" {each}', (3, 401, 31, 29), labels(3, 1, 31, 29), label=each)
                        for each in ("", IGNORED, "loss_param { weight_by_label_freqs: true "
                                     f"class_weighting: {[1 + i % 4 for i in range(401)]} }}")],
    "SoftmaxWithLossOHEM": [of('type: "SoftmaxWithLossOHEM"', IMAGE, labels(3, 1, 301, 299), n_tops=3)],
    "Accuracy": [of(f'type: "Accuracy" accuracy_param {{ top_k: {k} }}', MATRIX, LABELS, gradient=(), label=str(k))
                 for k in (1, 5)],
    "SegAccuracy": [of('type: "SegAccuracy"', IMAGE, labels(3, 1, 301, 299), gradient=())],
    "LabelsequenceAccuracy": [of('type: "LabelsequenceAccuracy" labelsequence_accuracy_param { blank_label: 2 }',
                                 (200, 50, 60), labels(200, 50), gradient=())],
    "RNN": [of(f'type: "RNN" {RECURRENT}', SEQUENCES, ON)],
    "LSTM": [of(f'type: "LSTM" {RECURRENT}', SEQUENCES, ON),
             of(f'type: "LSTM" {RECURRENT}', SEQUENCES, ON, (300, 100), gradient=(0, 2), label="static")],
    "LSTMUnit": [of('type: "LSTMUnit"', (1, 900, 300), (1, 900, 1200), np.ones((1, 900)), gradient=(0, 1))],
    "Lstm": [of(f'type: "Lstm" lstm_param {{ num_output: 100 {FILL} }}', SEQUENCES),
             of(f'type: "Lstm" lstm_param {{ num_output: 100 batch_size: 300 {FILL} }}', (12000, 100), ON.ravel(),
                label="continued")],
    "WarpCTCLoss": [of('type: "WarpCTCLoss"', SEQUENCES, labels(300, 9))],
    "CtcLoss": [of('type: "CtcLoss" ctc_loss_param { alphabet_size: 100 time_step: 40 blank_label: 99 }', SEQUENCES,
                   labels(300, 9))],
    "CTCGreedyDecoder": [of('type: "CTCGreedyDecoder"', SEQUENCES, gradient=())],
    "ContinuationIndicator": [of('type: "ContinuationIndicator" continuation_indicator_param { time_step: 900 '
                                 'batch_size: 900 }')],
    "PriorBox": [of('type: "PriorBox" prior_box_param { min_size: 4 max_size: 9 aspect_ratio: 2 }', (1, 2, 190, 190),
                    (1, 3, 300, 300), gradient=())],
    "PriorBoxClustered": [of('type: "PriorBoxClustered" prior_box_param { width: 4 height: 6 }', (1, 2, 290, 290),
                             (1, 3, 300, 300), gradient=())],
    "MultiBoxLoss": [of(f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: {CLASSES} {each} }}', OFFSETS,
                        SCORES, PRIORS, TRUTH, gradient=(0, 1), label=each)
                     for each in ("", "conf_loss_type: LOGISTIC mining_type: NONE", "use_prior_for_matching: false")],
    "DetectionOutput": [of(f'type: "DetectionOutput" detection_output_param {{ num_classes: {CLASSES} {each} }}',
                           OFFSETS, SCORES, PRIORS, gradient=(), label=each)
                        for each in ("confidence_threshold: 0.1 nms_param { nms_threshold: 0.45 top_k: 40 }",
                                     "code_type: CENTER_SIZE nms_param { nms_threshold: 0.45 top_k: 40 }")],
    "DetectionEvaluate": [of(f'type: "DetectionEvaluate" detection_evaluate_param {{ num_classes: {CLASSES} }}',
                             np.concatenate([TRUTH[0, 0][:, :2], spread((8 * N, 1), 0, 1), TRUTH[0, 0][:, 3:7]], axis=1
                                            )[None, None], TRUTH, gradient=())],
    "RegionLoss": [of(f'type: "RegionLoss" region_loss_param {{ {REGION} }}', YOLO, OBJECTS)],
    "Yolov3": [of(f'type: "Yolov3" yolov3_param {{ {REGION} anchors_scale: 8 {MASK} }}', YOLO, OBJECTS)],
    "YoloDetectionOutput": [of(f'type: "YoloDetectionOutput" yolo_detection_output_param {{ {FOUND} }}',
                               spread(YOLO, -2, 2), gradient=())],
    "Yolov3DetectionOutput": [of('type: "Yolov3DetectionOutput" yolov3_detection_output_param { mask_group_num: 1 '
                                 f'anchors_scale: 8 {FOUND} {MASK} }}', spread(YOLO, -2, 2), gradient=())],
    "ROIPooling": [of('type: "ROIPooling" roi_pooling_param { pooled_h: 7 pooled_w: 7 spatial_scale: 1 }',
                      (2, 64, 60, 60), regions(100, 2, 60))],
    "PSROIPooling": [of('type: "PSROIPooling" psroi_pooling_param { output_dim: 21 group_size: 3 spatial_scale: 1 }',
                        (2, 189, 60, 60), regions(100, 2, 60))],
    "ROIAlign": [of('type: "ROIAlign" roi_align_param { pooled_h: 7 pooled_w: 7 spatial_scale: 1 }', (2, 64, 60, 60),
                    regions(100, 2, 60))],
    "BoxAnnotatorOHEM": [of('type: "BoxAnnotatorOHEM" box_annotator_ohem_param { roi_per_img: 200 }',
                            regions(3000, 2, 60), (3000, 1), labels(3000, 1), (3000, 84))],
    "Proposal": [of('type: "Proposal" proposal_param { ratio: 1 ratio: 2 scale: 1 base_size: 4 feat_stride: 2 '
                    'min_size: 1 pre_nms_topn: 2000 post_nms_topn: 300 nms_thresh: 0.6 }',
                    spread((1, 4, 300, 300), 0.1, 1), spread((1, 8, 300, 300), -0.5, 0.5), np.array([[600, 600, 1.0]]),
                    n_tops=2, gradient=())],
    "ScaleRoute": [of('type: "ScaleRoute" scale_route_param { low_scale: 5 high_scale: 20 }', regions(9000, 2, 60),
                      (9000, 84), n_tops=2, gradient=())],
    "DecodeBBox": [of(f'type: "DecodeBBox" {BY_BOX}', (90000, 8), regions(90000, 2, 600), gradient=(), phase=1)],
    "BoxGroupOutput": [of(f'type: "BoxGroupOutput" {BY_BOX} box_group_output_param {{ {GROUPS} }}',
                          spread((2, 2, 200, 200), 0, 1), spread((2, 4, 200, 200), -2, 2), n_tops=2, gradient=())],
    "DetectNetTransformation": [of(f'type: "DetectNetTransformation" detectnet_groundtruth_param {{ {GRID} }} '
                                   "transform_param { mean_value: 127 }", spread((3, 3, 310, 420), 0, 255), BOXED,
                                   gradient=(), n_tops=2)],
    "DummyData": [of('type: "DummyData" dummy_data_param { shape { dim: 900 dim: 900 } }')],
    "Input": [of('type: "Input" input_param { shape { dim: 900 dim: 900 } }', n_tops=1)],
    "Parameter": [of('type: "Parameter" parameter_param { shape { dim: 900 dim: 900 } }')],
}

NOT_MEASURED: dict[str, str] = {
    **dict.fromkeys(("AnnotatedData", "Data", "DenseImageData", "HDF5Data", "ImageData", "ImageSegData", "VideoData",
                     "WindowData", "MemoryData"), "a source: its readers' batches are counted"),
    "HDF5Output": "writes its bottoms as they lie", "Python": "the user's own",
}
