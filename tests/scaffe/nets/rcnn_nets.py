"""Faster R-CNN and R-FCN, scaled down, in the shape of py-faster-rcnn's and py-R-FCN's end2end prototxts."""

from __future__ import annotations

MODULE = "tests.scaffe.nets.rcnn_layers"
MULTIPLIERS = "param { lr_mult: 1 } param { lr_mult: 2 }"
FILLERS = 'weight_filler { type: "xavier" } bias_filler { type: "constant" value: 0 }'


def convolution(name: str, bottom: str, n_output: int, kernel: int = 1, stride: int = 1) -> str:
    """A convolution that keeps the size, up to its stride."""
    return (f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" {MULTIPLIERS} '
            f'convolution_param {{ num_output: {n_output} kernel_size: {kernel} pad: {kernel // 2} stride: {stride} '
            f'{FILLERS} }} }}\n')


def relu(name: str) -> str:
    """In place."""
    return f'layer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}" }}\n'


def product(name: str, bottom: str, n_output: int) -> str:
    """An inner product."""
    return (f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {MULTIPLIERS} '
            f'inner_product_param {{ num_output: {n_output} {FILLERS} }} }}\n')


def python(name: str, bottoms: list[str], tops: list[str], layer: str, param_str: str = "") -> str:
    """A user's layer."""
    blobs = " ".join([f"bottom: '{b}'" for b in bottoms] + [f"top: '{t}'" for t in tops])
    return (f"layer {{ name: '{name}' type: 'Python' {blobs} python_param {{ module: '{MODULE}' layer: '{layer}' "
            f'param_str: "{param_str}" }} }}\n')


PROPOSAL = """layer { name: 'proposal' type: 'Proposal' bottom: 'rpn_cls_prob_reshape' bottom: 'rpn_bbox_pred'
  bottom: 'im_info' top: 'rpn_rois' proposal_param { feat_stride: 8 base_size: 8 min_size: 4 ratio: 1 scale: 2 scale: 3
  pre_nms_topn: 100 post_nms_topn: %d nms_thresh: 0.7 } }
"""
RPN = (convolution("conv1", "data", 12, 5, 2) + relu("conv1") + convolution("conv2", "conv1", 16, 3, 2) + relu("conv2")
       + convolution("conv3", "conv2", 24, 3, 2) + relu("conv3") + convolution("rpn", "conv3", 24, 3) + relu("rpn")
       + convolution("rpn_cls_score", "rpn", 4) + convolution("rpn_bbox_pred", "rpn", 8)
       + """layer { bottom: "rpn_cls_score" top: "rpn_cls_score_reshape" name: "rpn_cls_score_reshape" type: "Reshape"
  reshape_param { shape { dim: 0 dim: 2 dim: -1 dim: 0 } } }
layer { name: "rpn_cls_prob" type: "Softmax" bottom: "rpn_cls_score_reshape" top: "rpn_cls_prob" }
layer { name: 'rpn_cls_prob_reshape' type: 'Reshape' bottom: 'rpn_cls_prob' top: 'rpn_cls_prob_reshape'
  reshape_param { shape { dim: 0 dim: 4 dim: -1 dim: 0 } } }
""")
RPN_LOSSES = python("rpn-data", ["rpn_cls_score", "gt_boxes", "im_info", "data"],
                    ["rpn_labels", "rpn_bbox_targets", "rpn_bbox_inside_weights", "rpn_bbox_outside_weights"],
                    "AnchorTarget", "'feat_stride': 8") + """
layer { name: "rpn_loss_cls" type: "SoftmaxWithLoss" bottom: "rpn_cls_score_reshape" bottom: "rpn_labels"
  propagate_down: 1 propagate_down: 0 top: "rpn_cls_loss" loss_weight: 1
  loss_param { ignore_label: -1 normalize: true } }
layer { name: "rpn_loss_bbox" type: "SmoothL1Loss" bottom: "rpn_bbox_pred" bottom: "rpn_bbox_targets"
  bottom: 'rpn_bbox_inside_weights' bottom: 'rpn_bbox_outside_weights' top: "rpn_loss_bbox" loss_weight: 1
  smooth_l1_loss_param { sigma: 3.0 } }
"""
DRAWN = python("input-data", [], ["data", "im_info", "gt_boxes"], "Drawn")
INPUT = ("layer { name: 'data' type: 'Input' top: 'data' top: 'im_info' input_param { shape { dim: 1 dim: 1 dim: 64 "
         "dim: 64 } shape { dim: 1 dim: 3 } } }\n")
SAMPLED = ["rois", "labels", "bbox_targets", "bbox_inside_weights", "bbox_outside_weights"]
ROI_POOLING = """layer { name: "roi_pool" type: "ROIPooling" bottom: "conv3" bottom: "rois" top: "pool5"
  roi_pooling_param { pooled_w: 4 pooled_h: 4 spatial_scale: 0.125 } }
"""
ROI_ALIGN = """layer { name: "roi_align" type: "ROIAlign" bottom: "conv3" bottom: "rois" top: "pool5"
  roi_align_param { pooled_w: 4 pooled_h: 4 spatial_scale: 0.125 sampling_ratio: 2 } }
"""
HEAD = (product("fc6", "pool5", 48) + relu("fc6") + product("cls_score", "fc6", 3) + product("bbox_pred", "fc6", 12))
HEAD_LOSSES = """layer { name: "loss_cls" type: "SoftmaxWithLoss" bottom: "cls_score" bottom: "labels"
  propagate_down: 1 propagate_down: 0 top: "loss_cls" loss_weight: 1 }
layer { name: "loss_bbox" type: "SmoothL1Loss" bottom: "bbox_pred" bottom: "bbox_targets" bottom: "bbox_inside_weights"
  bottom: "bbox_outside_weights" top: "loss_bbox" loss_weight: 1 }
"""
CLS_PROB = 'layer { name: "cls_prob" type: "Softmax" bottom: "cls_score" top: "cls_prob" }\n'


def proposal(native: bool, n_regions: int, top: str = "rpn_rois") -> str:
    """The layer that chooses regions: ours, or a user's in Python."""
    if native:
        return (PROPOSAL % n_regions).replace("rpn_rois", top)
    return python("proposal", ["rpn_cls_prob_reshape", "rpn_bbox_pred", "im_info"], [top], "ProposalOfScores")


def sampled(n_classes: int) -> str:
    """The regions to train on."""
    return python("roi-data", ["rpn_rois", "gt_boxes"], SAMPLED, "ProposalTarget", f"'num_classes': {n_classes}")


def faster_rcnn_train(native: bool, pooling: str = ROI_POOLING) -> str:
    """end2end/train.prototxt."""
    return DRAWN + RPN + RPN_LOSSES + proposal(native, 24) + sampled(3) + pooling + HEAD + HEAD_LOSSES


def faster_rcnn_test(native: bool, pooling: str = ROI_POOLING) -> str:
    """end2end/test.prototxt."""
    return INPUT + RPN + proposal(native, 8, "rois") + pooling + HEAD + CLS_PROB


def pooled_by_position(name: str, outputs: int, top: str) -> str:
    """Position-sensitive scores, pooled and voted."""
    return (convolution(f"rfcn_{name}", "conv3", outputs * 9)
            + f"""layer {{ bottom: "rfcn_{name}" bottom: "rois" top: "pooled_{name}" name: "pooled_{name}"
  type: "PSROIPooling" psroi_pooling_param {{ spatial_scale: 0.125 output_dim: {outputs} group_size: 3 }} }}
layer {{ bottom: "pooled_{name}" top: "{top}" name: "ave_{name}" type: "Pooling"
  pooling_param {{ pool: AVE kernel_size: 3 stride: 3 }} }}
""")


RFCN_HEAD = pooled_by_position("cls", 3, "cls_score") + pooled_by_position("bbox", 8, "bbox_pred")
OHEM = """layer { name: "per_roi_loss_cls" type: "SoftmaxWithLossOHEM" bottom: "cls_score" bottom: "labels"
  top: "temp_loss_cls" top: "temp_prob_cls" top: "per_roi_loss_cls" loss_weight: 0 loss_weight: 0 loss_weight: 0
  propagate_down: false propagate_down: false }
layer { name: "per_roi_loss_bbox" type: "SmoothL1LossOHEM" bottom: "bbox_pred" bottom: "bbox_targets"
  bottom: "bbox_inside_weights" top: "temp_loss_bbox" top: "per_roi_loss_bbox" loss_weight: 0 loss_weight: 0
  propagate_down: false propagate_down: false propagate_down: false }
layer { name: "per_roi_loss" type: "Eltwise" bottom: "per_roi_loss_cls" bottom: "per_roi_loss_bbox" top: "per_roi_loss"
  propagate_down: false propagate_down: false }
layer { bottom: "rois" bottom: "per_roi_loss" bottom: "labels" bottom: "bbox_inside_weights" top: "labels_ohem"
  top: "bbox_loss_weights_ohem" name: "annotator_detector" type: "BoxAnnotatorOHEM"
  box_annotator_ohem_param { roi_per_img: 12 ignore_label: -1 }
  propagate_down: false propagate_down: false propagate_down: false propagate_down: false }
layer { name: "silence" type: "Silence" bottom: "bbox_outside_weights" bottom: "temp_loss_cls" bottom: "temp_prob_cls"
  bottom: "temp_loss_bbox" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "cls_score" bottom: "labels_ohem" top: "loss_cls" loss_weight: 1
  loss_param { ignore_label: -1 } propagate_down: true propagate_down: false }
layer { name: "accuracy" type: "Accuracy" bottom: "cls_score" bottom: "labels_ohem" top: "accuracy"
  accuracy_param { ignore_label: -1 } propagate_down: false propagate_down: false }
layer { name: "loss_bbox" type: "SmoothL1LossOHEM" bottom: "bbox_pred" bottom: "bbox_targets"
  bottom: "bbox_loss_weights_ohem" top: "loss_bbox" loss_weight: 1
  loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 12 }
  propagate_down: true propagate_down: false propagate_down: false }
"""


def rfcn_train() -> str:
    """train_agnostic_ohem.prototxt."""
    return DRAWN + RPN + RPN_LOSSES + proposal(True, 24) + sampled(2) + RFCN_HEAD + OHEM


def rfcn_test() -> str:
    """test_agnostic.prototxt."""
    return INPUT + RPN + proposal(True, 8, "rois") + RFCN_HEAD + CLS_PROB
