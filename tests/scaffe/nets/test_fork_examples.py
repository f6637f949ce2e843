"""More nets of forks, shortened and written anew: video-caffe's C3D, MNC's, squeeze and excitation, DetectNet."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.data.feeds.layer_feed import Share
from scaffe.layers.base.random import Stream
from scaffe.nets.devices import load_kernels
from scaffe.nets.setup import Selection, make_context, net_by_itself
from tests.reference.detectnet import planes

TRAIN, TEST = 0, 1
CONV = 'weight_filler { type: "xavier" }'


def build(folder, text, phase=TRAIN):
    (folder / "net.prototxt").write_text(text)
    context = make_context(load_kernels(1), Stream(7), Share(), 7)
    return net_by_itself(str(folder / "net.prototxt"), Selection(phase), context)


def blobs_of(net, name):
    (layer,) = [node.layer for node in net.nodes if node.name == name]
    return layer.blobs


C3D = f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 2 dim: 3 dim: 4 dim: 8 dim: 8 }} shape {{ dim: 2 }} data_filler {{ type: "gaussian" }}
    data_filler {{ type: "constant" value: 1 }} }} }}
layer {{ name: "conv1a" type: "NdConvolution" bottom: "data" top: "conv1a" param {{ lr_mult: 1 }} param {{ lr_mult: 2 }}
    convolution_param {{ num_output: 4 kernel_shape {{ dim: 3 dim: 3 dim: 3 }} stride_shape {{ dim: 1 dim: 1 dim: 1 }}
    pad_shape {{ dim: 1 dim: 1 dim: 1 }} {CONV} }} }}
layer {{ name: "relu1a" type: "ReLU" bottom: "conv1a" top: "conv1a" }}
layer {{ name: "pool1" type: "NdPooling" bottom: "conv1a" top: "pool1" pooling_param {{ pool: MAX
    kernel_shape {{ dim: 1 dim: 2 dim: 2 }} stride_shape {{ dim: 1 dim: 2 dim: 2 }} }} }}
layer {{ name: "conv2a" type: "NdConvolution" bottom: "pool1" top: "conv2a" convolution_param {{ num_output: 6
    kernel_shape {{ dim: 3 dim: 3 dim: 3 }} stride_shape {{ dim: 1 dim: 1 dim: 1 }}
    pad_shape {{ dim: 1 dim: 1 dim: 1 }} {CONV} }} }}
layer {{ name: "pool2" type: "NdPooling" bottom: "conv2a" top: "pool2" pooling_param {{ pool: MAX
    kernel_shape {{ dim: 2 dim: 2 dim: 2 }} stride_shape {{ dim: 2 dim: 2 dim: 2 }} }} }}
layer {{ name: "fc6" type: "InnerProduct" bottom: "pool2" top: "fc6" inner_product_param {{ num_output: 3 {CONV} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "fc6" bottom: "label" top: "loss" include {{ phase: TRAIN }} }}
layer {{ name: "accuracy" type: "Accuracy" bottom: "fc6" bottom: "label" top: "accuracy" include {{ phase: TEST }} }}"""


def test_a_net_of_video_caffe(tmp_path):
    made = build(tmp_path, C3D)
    made.forward()
    made.backward()
    assert made.blobs["conv1a"].shape == (2, 4, 4, 8, 8) and made.blobs["pool2"].shape == (2, 6, 2, 2, 2)
    clips, pooled = made.blobs["conv1a"].data, made.blobs["pool1"].data
    np.testing.assert_array_equal(pooled, clips.reshape(2, 4, 4, 4, 2, 4, 2).max((4, 6)))
    assert all(np.abs(blob.diff).max() > 0 for blob in blobs_of(made, "conv1a"))
    tested = build(tmp_path, C3D, TEST)
    tested.forward()
    assert 0 <= tested.blobs["accuracy"].data <= 1


MNC = f"""layer {{ name: "data" type: "Input" top: "data" top: "rois" top: "masks" top: "labels" input_param {{
    shape {{ dim: 1 dim: 3 dim: 20 dim: 24 }} shape {{ dim: 3 dim: 5 }} shape {{ dim: 3 dim: 1 dim: 6 dim: 6 }}
    shape {{ dim: 3 }} }} }}
layer {{ name: "conv5" type: "Convolution" bottom: "data" top: "conv5"
    convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 stride: 2 {CONV} }} }}
layer {{ name: "roi_pool_conv5" type: "ROIPooling" bottom: "conv5" bottom: "rois" top: "roi_pool_conv5"
    roi_pooling_param {{ pooled_w: 6 pooled_h: 6 spatial_scale: 0.5 }} }}
layer {{ name: "mask_pooling" type: "MaskPooling" bottom: "roi_pool_conv5" bottom: "masks" top: "roi_mask_conv5" }}
layer {{ name: "roi_mask_conv5_pool" type: "Pooling" bottom: "roi_mask_conv5" top: "roi_mask_conv5_pool"
    pooling_param {{ kernel_size: 2 stride: 2 pool: MAX }} }}
layer {{ name: "fc6_mask" type: "InnerProduct" bottom: "roi_mask_conv5_pool" top: "fc6_mask"
    inner_product_param {{ num_output: 5 {CONV} }} }}
layer {{ name: "roi_box" type: "Pooling" bottom: "roi_pool_conv5" top: "roi_box"
    pooling_param {{ kernel_size: 2 stride: 2 pool: MAX }} }}
layer {{ name: "fc6_box" type: "InnerProduct" bottom: "roi_box" top: "fc6_box"
    inner_product_param {{ num_output: 5 {CONV} }} }}
layer {{ name: "join" type: "Concat" bottom: "fc6_mask" bottom: "fc6_box" top: "join" concat_param {{ axis: 1 }} }}
layer {{ name: "seg_cls_score" type: "InnerProduct" bottom: "join" top: "seg_cls_score"
    inner_product_param {{ num_output: 3 {CONV} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "seg_cls_score" bottom: "labels" top: "loss" }}"""


def test_a_net_of_multi_task_cascades(tmp_path):
    """Outside of its mask a region counts in the box's branch alone: with empty masks fc6_mask sees nothing."""
    made, rng = build(tmp_path, MNC), np.random.default_rng(2)
    made.blobs["data"].data[...] = rng.normal(size=(1, 3, 20, 24))
    made.blobs["rois"].data[...] = [[0, 0, 0, 23, 19], [0, 4, 4, 15, 11], [0, 8, 2, 20, 19]]
    made.blobs["labels"].data[...] = [0, 1, 2]
    masks = (rng.uniform(size=(3, 1, 6, 6)) > 0.5).astype(np.float32)
    made.blobs["masks"].data[...] = masks
    made.forward()
    made.backward()
    np.testing.assert_array_equal(made.blobs["roi_mask_conv5"].data, made.blobs["roi_pool_conv5"].data * masks)
    assert np.abs(blobs_of(made, "fc6_mask")[0].diff).max() > 0
    made.params.diff[...] = 0
    made.blobs["masks"].data[...] = 0
    made.forward()
    made.backward()
    assert not blobs_of(made, "fc6_mask")[0].diff.any() and np.abs(blobs_of(made, "conv5")[0].diff).max() > 0


SQUEEZE = f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 2 dim: 3 dim: 6 dim: 6 }} shape {{ dim: 2 }} data_filler {{ type: "gaussian" }}
    data_filler {{ type: "constant" value: 1 }} }} }}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
    convolution_param {{ num_output: 8 kernel_size: 3 pad: 1 {CONV} }} }}
layer {{ name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param {{ pool: AVE global_pooling: true }} }}
layer {{ name: "down" type: "Convolution" bottom: "pool" top: "down"
    convolution_param {{ num_output: 2 kernel_size: 1 {CONV} }} }}
layer {{ name: "relu" type: "ReLU" bottom: "down" top: "down" }}
layer {{ name: "up" type: "Convolution" bottom: "down" top: "up"
    convolution_param {{ num_output: 8 kernel_size: 1 {CONV} }} }}
layer {{ name: "prob" type: "Sigmoid" bottom: "up" top: "prob" }}
layer {{ name: "scaled" type: "BroadcastMul" bottom: "conv" bottom: "prob" top: "scaled" }}
layer {{ name: "sum" type: "Eltwise" bottom: "scaled" bottom: "conv" top: "sum" }}
layer {{ name: "fc" type: "InnerProduct" bottom: "sum" top: "fc" inner_product_param {{ num_output: 3 {CONV} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }}"""


@pytest.mark.parametrize("order", ['bottom: "conv" bottom: "prob"', 'bottom: "prob" bottom: "conv"'])
def test_a_net_with_squeeze_and_excitation(tmp_path, order):
    """BroadcastMul takes its bottoms in either order."""
    made = build(tmp_path, SQUEEZE.replace('bottom: "conv" bottom: "prob"', order))
    made.forward()
    made.backward()
    conv, prob = made.blobs["conv"].data, made.blobs["prob"].data
    np.testing.assert_allclose(made.blobs["sum"].data, conv * prob.reshape(2, 8, 1, 1) + conv, rtol=1e-5, atol=1e-6)
    assert np.abs(blobs_of(made, "up")[0].diff).max() > 0


DETECTNET = f"""layer {{ name: "data" type: "Input" top: "data" top: "label" input_param {{
    shape {{ dim: 1 dim: 3 dim: 32 dim: 48 }} shape {{ dim: 1 dim: 1 dim: 3 dim: 16 }} }} }}
layer {{ name: "transform" type: "DetectNetTransformation" bottom: "data" bottom: "label" top: "transformed_data"
    top: "transformed_label" transform_param {{ mean_value: 127 }} detectnet_groundtruth_param {{ stride: 8
    scale_cvg: 0.4 gridbox_type: GRIDBOX_MIN min_cvg_len: 8 coverage_type: RECTANGULAR image_size_x: 48
    image_size_y: 32 obj_norm: true crop_bboxes: false object_class {{ src: 1 dst: 0 }} }}
    detectnet_augmentation_param {{ crop_prob: 0 scale_prob: 0 flip_prob: 0 rotation_prob: 0 hue_rotation_prob: 0
    desaturation_prob: 0 }} }}
layer {{ name: "slice-label" type: "Slice" bottom: "transformed_label" top: "foreground-label" top: "bbox-label"
    top: "size-label" top: "obj-label" top: "coverage-label"
    slice_param {{ slice_dim: 1 slice_point: 1 slice_point: 5 slice_point: 7 slice_point: 8 }} }}
layer {{ name: "coverage-block" type: "Concat" bottom: "foreground-label" bottom: "foreground-label"
    bottom: "foreground-label" bottom: "foreground-label" top: "coverage-block" }}
layer {{ name: "size-block" type: "Concat" bottom: "size-label" bottom: "size-label" top: "size-block" }}
layer {{ name: "bb-label-norm" type: "Eltwise" bottom: "bbox-label" bottom: "size-block" top: "bbox-label-norm"
    eltwise_param {{ operation: PROD }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "transformed_data" top: "conv1"
    convolution_param {{ num_output: 6 kernel_size: 7 pad: 3 stride: 8 {CONV} }} }}
layer {{ name: "cvg" type: "Convolution" bottom: "conv1" top: "cvg"
    convolution_param {{ num_output: 1 kernel_size: 1 {CONV} }} }}
layer {{ name: "coverage/sig" type: "Sigmoid" bottom: "cvg" top: "coverage" }}
layer {{ name: "bbox/regressor" type: "Convolution" bottom: "conv1" top: "bboxes"
    convolution_param {{ num_output: 4 kernel_size: 1 {CONV} }} }}
layer {{ name: "bbox_mask" type: "Eltwise" bottom: "bboxes" bottom: "coverage-block" top: "bboxes-masked"
    eltwise_param {{ operation: PROD }} }}
layer {{ name: "bbox-norm" type: "Eltwise" bottom: "bboxes-masked" bottom: "size-block" top: "bboxes-masked-norm"
    eltwise_param {{ operation: PROD }} }}
layer {{ name: "bbox_loss" type: "L1Loss" bottom: "bboxes-masked-norm" bottom: "bbox-label-norm" top: "loss_bbox"
    loss_weight: 2 }}
layer {{ name: "coverage_loss" type: "EuclideanLoss" bottom: "coverage" bottom: "coverage-label" top: "loss_coverage" }}
"""


def test_a_net_of_detectnet(tmp_path):
    """The cells that an object covers learn its box; cells without one pass no gradient to the boxes."""
    made = build(tmp_path, DETECTNET)
    made.blobs["data"].data[...] = np.random.default_rng(1).uniform(0, 255, (1, 3, 32, 48))
    label = made.blobs["label"].data
    label[0, 0, 0, :2], label[0, 0, 1, :6] = [1, 16], [9, 7, 22, 18, 0, 1]
    made.forward()
    made.backward()
    expected = planes([(9, 7, 22, 18, 1)], 8, (48, 32), 0.4, 8, None, False, True, {1: 0})
    np.testing.assert_allclose(made.blobs["transformed_label"].data[0], expected, rtol=1e-6)
    covered = expected[0] > 0
    assert 0 < covered.sum() < covered.size
    lost = (np.abs(made.blobs["bboxes"].data[0] - expected[1:5]) * covered * expected[[5, 6, 5, 6]]).sum()
    np.testing.assert_allclose(made.blobs["loss_bbox"].data, lost, rtol=1e-5)
    assert not made.blobs["bboxes"].diff[0][:, ~covered].any() and made.blobs["bboxes"].diff[0][:, covered].any()
    assert np.abs(blobs_of(made, "cvg")[0].diff).max() > 0
