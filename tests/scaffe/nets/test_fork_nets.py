"""Nets of forks, shortened and written anew: they build, run forward and backward, and learn."""

from __future__ import annotations

import numpy as np
from google.protobuf import text_format

from scaffe.data.feeds.layer_feed import Share
from scaffe.files.upgrade import upgrade_net
from scaffe.layers.base.random import Stream
from scaffe.nets.devices import load_kernels
from scaffe.nets.setup import Selection, make_context, net_by_itself
from scaffe.proto import caffe_pb2

TRAIN, TEST = 0, 1
CONV = 'weight_filler { type: "xavier" }'


def run(folder, text, phase=TRAIN):
    """The net after forward and backward."""
    (folder / "net.prototxt").write_text(text)
    made = net_by_itself(str(folder / "net.prototxt"), Selection(phase),
                         make_context(load_kernels(1), Stream(7), Share(), 7))
    made.forward()
    if phase == TRAIN:
        made.backward()
        assert all(np.isfinite(diff).all() for diff in [made.params.diff])
        assert np.abs(made.params.diff).max() > 0
    return made


SEGNET = f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 2 dim: 3 dim: 8 dim: 12 }} shape {{ dim: 2 dim: 1 dim: 8 dim: 12 }}
    data_filler {{ type: "gaussian" }} data_filler {{ type: "constant" value: 1 }} }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
    convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 {CONV} }} }}
layer {{ name: "conv1_bn" type: "BN" bottom: "conv1" top: "conv1" param {{ lr_mult: 1 }} param {{ lr_mult: 1 }}
    bn_param {{ scale_filler {{ type: "constant" value: 1 }} shift_filler {{ type: "constant" value: 0.001 }} }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }}
layer {{ name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" top: "pool1_mask"
    pooling_param {{ pool: MAX kernel_size: 2 stride: 2 }} }}
layer {{ name: "upsample1" type: "Upsample" bottom: "pool1" bottom: "pool1_mask" top: "up"
    upsample_param {{ scale: 2 }} }}
layer {{ name: "score" type: "Convolution" bottom: "up" top: "score"
    convolution_param {{ num_output: 5 kernel_size: 3 pad: 1 {CONV} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss"
    softmax_param {{ engine: CAFFE }} loss_param {{ ignore_label: 11 }} }}"""


def test_a_net_of_segnet(tmp_path):
    made = run(tmp_path, SEGNET)
    assert made.blobs["score"].shape == (2, 5, 8, 12)
    np.testing.assert_allclose(made.blobs["loss"].data, np.log(5), rtol=0.5)


PSPNET = f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 1 dim: 3 dim: 9 dim: 9 }} shape {{ dim: 1 dim: 1 dim: 9 dim: 9 }}
    data_filler {{ type: "gaussian" }} data_filler {{ type: "constant" value: 2 }} }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
    convolution_param {{ num_output: 4 kernel_size: 3 stride: 2 pad: 1 bias_term: false {CONV} }} }}
layer {{ name: "conv1/bn" type: "BN" bottom: "conv1" top: "conv1" param {{ lr_mult: 1 decay_mult: 0 }}
    param {{ lr_mult: 1 decay_mult: 0 }} param {{ lr_mult: 0 }} param {{ lr_mult: 0 }}
    bn_param {{ slope_filler {{ type: "constant" value: 1 }} bias_filler {{ type: "constant" value: 0 }} frozen: false
    momentum: 0.95 }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }}
layer {{ name: "pool" type: "Pooling" bottom: "conv1" top: "pool"
    pooling_param {{ pool: AVE kernel_size: 5 stride: 5 }} }}
layer {{ name: "pool_interp" type: "Interp" bottom: "pool" top: "pool_interp" interp_param {{ height: 5 width: 5 }} }}
layer {{ name: "concat" type: "Concat" bottom: "conv1" bottom: "pool_interp" top: "concat" }}
layer {{ name: "conv6" type: "Convolution" bottom: "concat" top: "conv6"
    convolution_param {{ num_output: 3 kernel_size: 1 {CONV} }} }}
layer {{ name: "conv6_interp" type: "Interp" bottom: "conv6" top: "conv6_interp" interp_param {{ zoom_factor: 2 }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "conv6_interp" bottom: "label" top: "loss"
    include {{ phase: TRAIN }} }}
layer {{ name: "accuracy" type: "SegAccuracy" bottom: "conv6_interp" bottom: "label" top: "accuracy"
    include {{ phase: TEST }} seg_accuracy_param {{ ignore_label: 255 }} }}"""


def test_a_net_of_pspnet(tmp_path):
    made = run(tmp_path, PSPNET)
    assert made.blobs["conv6_interp"].shape == (1, 3, 9, 9)
    (averages,) = [layer.layer.blobs[2] for layer in made.nodes if layer.param.type == "BN"]
    assert np.abs(averages.data).max() > 0
    tested = run(tmp_path, PSPNET, TEST)
    assert tested.blobs["accuracy"].shape == (1, 1, 1, 3)


OLD = """layers { name: "data" type: DUMMY_DATA top: "data" top: "label" dummy_data_param {
    shape { dim: 2 dim: 3 dim: 4 dim: 8 dim: 8 } shape { dim: 2 }
    data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layers { name: "conv1a" type: CONVOLUTION3D bottom: "data" top: "conv1a" blobs_lr: 1 blobs_lr: 2
  convolution_param { num_output: 4 kernel_size: 3 kernel_depth: 3 pad: 1 temporal_pad: 1
    weight_filler { type: "gaussian" std: 0.01 } bias_filler { type: "constant" value: 1 } } }
layers { name: "relu1a" type: RELU bottom: "conv1a" top: "conv1a" }
layers { name: "pool1" type: POOLING3D bottom: "conv1a" top: "pool1"
  pooling_param { pool: MAX kernel_size: 2 kernel_depth: 1 stride: 2 temporal_stride: 1 } }
layers { name: "fc" type: INNER_PRODUCT bottom: "pool1" top: "fc"
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "fc" bottom: "label" top: "loss" }"""


def test_an_old_net_builds_and_is_the_new_one():
    net = upgrade_net(text_format.Parse(OLD, caffe_pb2.NetParameter()))
    convolution, pooling = net.layer[1], net.layer[3]
    assert (convolution.type, pooling.type) == ("Convolution3D", "Pooling3D")
    assert not convolution.HasField("convolution_param") and not pooling.HasField("pooling_param")
    assert convolution.convolution3d_param.kernel_depth == convolution.convolution3d_param.kernel_size == 3
    assert convolution.convolution3d_param.temporal_pad == 1 and pooling.pooling3d_param.stride == 2
    assert convolution.param[1].lr_mult == 2
    assert upgrade_net(net) == net


def test_an_old_net_of_c3d(tmp_path):
    made = run(tmp_path, OLD)
    assert made.blobs["pool1"].shape == (2, 4, 4, 4, 4) and made.blobs["fc"].shape == (2, 3)


def test_old_video_data_becomes_video_data_and_its_transformation():
    text = """layers { name: "data" type: VIDEO_DATA top: "data" top: "label" image_data_param { source: "train.lst"
        use_image: true mean_file: "mean.binaryproto" batch_size: 30 crop_size: 112 mirror: true show_data: 0
        new_height: 128 new_width: 171 new_length: 16 shuffle: true } }"""
    made = upgrade_net(text_format.Parse(text, caffe_pb2.NetParameter())).layer[0]
    assert made.type == "VideoData" and not made.HasField("image_data_param")
    assert made.video_data_param == caffe_pb2.VideoDataParameter(
        source="train.lst", use_image=True, batch_size=30, new_height=128, new_width=171, new_length=16, shuffle=True,
        show_data=False)
    assert made.transform_param == caffe_pb2.TransformationParameter(mean_file="mean.binaryproto", crop_size=112,
                                                                     mirror=True)


CTPN = f"""layer {{ name: "data" type: "DummyData" top: "conv5_3" top: "target" dummy_data_param {{
    shape {{ dim: 1 dim: 4 dim: 3 dim: 7 }} shape {{ dim: 1 dim: 2 dim: 3 dim: 7 }}
    data_filler {{ type: "gaussian" }} }} }}
layer {{ name: "im2col" type: "Im2col" bottom: "conv5_3" top: "im2col" convolution_param {{ pad: 1 kernel_size: 3 }} }}
layer {{ name: "im2col_transpose" type: "Transpose" bottom: "im2col" top: "im2col_transpose"
    transpose_param {{ dim: 3 dim: 2 dim: 0 dim: 1 }} }}
layer {{ name: "lstm_input" type: "Reshape" bottom: "im2col_transpose" top: "lstm_input"
    reshape_param {{ shape {{ dim: -1 }} axis: 1 num_axes: 2 }} }}
layer {{ name: "lstm" type: "Lstm" bottom: "lstm_input" top: "lstm"
    lstm_param {{ num_output: 5 {CONV} clipping_threshold: 1 }} }}
layer {{ name: "rlstm_input" type: "Reverse" bottom: "lstm_input" top: "rlstm_input" reverse_param {{ axis: 0 }} }}
layer {{ name: "rlstm" type: "Lstm" bottom: "rlstm_input" top: "rlstm-output" lstm_param {{ num_output: 5 {CONV} }} }}
layer {{ name: "rlstm_back" type: "Reverse" bottom: "rlstm-output" top: "rlstm" reverse_param {{ axis: 0 }} }}
layer {{ name: "merge" type: "Concat" bottom: "lstm" bottom: "rlstm" top: "merge" concat_param {{ axis: 2 }} }}
layer {{ name: "rows" type: "Reshape" bottom: "merge" top: "rows"
    reshape_param {{ shape {{ dim: 3 dim: 1 }} axis: 1 num_axes: 1 }} }}
layer {{ name: "lstm_output" type: "Transpose" bottom: "rows" top: "lstm_output"
    transpose_param {{ dim: 2 dim: 3 dim: 1 dim: 0 }} }}
layer {{ name: "fc" type: "Convolution" bottom: "lstm_output" top: "fc"
    convolution_param {{ num_output: 2 kernel_size: 1 {CONV} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "fc" bottom: "target" top: "loss" }}"""


def test_a_net_of_ctpn(tmp_path):
    made = run(tmp_path, CTPN)
    assert made.blobs["lstm_input"].shape == (7, 3, 36) and made.blobs["lstm"].shape == (7, 3, 5)
    assert made.blobs["fc"].shape == (1, 2, 3, 7)


OCR = f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 2 dim: 3 dim: 4 dim: 6 }} shape {{ dim: 2 dim: 3 }} data_filler {{ type: "gaussian" }}
    data_filler {{ type: "constant" value: 2 }} }} }}
layer {{ name: "turn" type: "Transpose" bottom: "data" top: "turn"
    transpose_param {{ dim: 3 dim: 2 dim: 0 dim: 1 }} }}
layer {{ name: "steps" type: "Transpose" bottom: "turn" top: "steps"
    transpose_param {{ dim: 0 dim: 2 dim: 1 dim: 3 }} }}
layer {{ name: "blstm_input" type: "Reshape" bottom: "steps" top: "blstm_input"
    reshape_param {{ shape {{ dim: -1 }} axis: 2 num_axes: 2 }} }}
layer {{ name: "lstm" type: "Lstm" bottom: "blstm_input" top: "lstm" lstm_param {{ num_output: 6 {CONV} }} }}
layer {{ name: "fc1x" type: "InnerProduct" bottom: "lstm" top: "fc1x"
    inner_product_param {{ axis: 2 num_output: 4 {CONV} }} }}
layer {{ name: "ctcloss" type: "WarpCTCLoss" bottom: "fc1x" bottom: "label" top: "ctcloss" loss_weight: 1 }}
layer {{ name: "acc" type: "CTCGreedyDecoder" bottom: "fc1x" bottom: "label" top: "acc" include {{ phase: TEST }} }}"""


def test_a_net_of_caffe_ocr(tmp_path):
    made = run(tmp_path, OCR)
    assert made.blobs["fc1x"].shape == (6, 2, 4) and made.blobs["ctcloss"].data > 0
    assert run(tmp_path, OCR, TEST).blobs["acc"].shape == (1, 2, 1, 1)


YOLO = f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 2 dim: 3 dim: 12 dim: 12 }} shape {{ dim: 2 dim: 1 dim: 4 dim: 5 }} data_filler {{ type: "gaussian" }}
    data_filler {{ type: "constant" value: 0.4 }} }} }}
layer {{ name: "conv11" type: "DepthwiseConvolution" bottom: "data" top: "conv11"
    convolution_param {{ num_output: 3 group: 3 kernel_size: 3 pad: 1 {CONV} }} }}
layer {{ name: "conv12" type: "Convolution" bottom: "conv11" top: "conv12"
    convolution_param {{ num_output: 8 kernel_size: 2 stride: 2 {CONV} }} }}
layer {{ name: "reorg" type: "Reorg" bottom: "conv12" top: "reorg" reorg_param {{ stride: 2 }} }}
layer {{ name: "pred" type: "Convolution" bottom: "reorg" top: "pred"
    convolution_param {{ num_output: 16 kernel_size: 1 {CONV} }} }}
layer {{ name: "RegionLoss" type: "RegionLoss" bottom: "pred" bottom: "label" top: "det_loss" loss_weight: 1
    region_loss_param {{ side: 3 num_class: 3 coords: 4 num: 2 softmax: 1 jitter: 0.2 rescore: 0 object_scale: 5.0
    noobject_scale: 1.0 class_scale: 1.0 coord_scale: 1.0 thresh: 0.6 biases: 1.08 biases: 1.19 biases: 3.42
    biases: 4.41 }} include {{ phase: TRAIN }} }}
layer {{ name: "v3" type: "Yolov3" bottom: "pred" bottom: "label" top: "v3" include {{ phase: TRAIN }}
    yolov3_param {{ num_class: 3 num: 2 biases: 4 biases: 5 biases: 9 biases: 7 mask: 0 mask: 1 anchors_scale: 4
    use_logic_gradient: true }} }}
layer {{ name: "detection_out" type: "YoloDetectionOutput" bottom: "pred" top: "detection_out" include {{ phase: TEST }}
    yolo_detection_output_param {{ side: 3 num_classes: 3 coords: 4 num_box: 2 confidence_threshold: 0.1
    nms_threshold: 0.45 biases: 1.08 biases: 1.19 biases: 3.42 biases: 4.41 }} }}"""


def test_a_net_of_mobilenet_yolo(tmp_path):
    made = run(tmp_path, YOLO)
    assert made.blobs["reorg"].shape == (2, 32, 3, 3) and made.blobs["det_loss"].data > 0
    found = run(tmp_path, YOLO, TEST).blobs["detection_out"]
    assert found.shape[:2] == (1, 1) and found.shape[3] == 7


FACE = f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 4 dim: 3 dim: 6 dim: 6 }} shape {{ dim: 4 }} data_filler {{ type: "gaussian" }}
    data_filler {{ type: "constant" value: 3 }} }} }}
layer {{ name: "fc5" type: "InnerProduct" bottom: "data" top: "fc5" inner_product_param {{ num_output: 8 {CONV} }} }}
layer {{ name: "relu" type: "Insanity" bottom: "fc5" top: "fc5" }}
layer {{ name: "fc6" type: "InnerProduct" bottom: "fc5" top: "fc6" inner_product_param {{ num_output: 5 {CONV} }} }}
layer {{ name: "softmax_loss" type: "SoftmaxWithLoss" bottom: "fc6" bottom: "label" top: "softmax_loss" }}
layer {{ name: "center_loss" type: "CenterLoss" bottom: "fc5" bottom: "label" top: "center_loss"
    param {{ lr_mult: 1 decay_mult: 2 }} loss_weight: 0.008
    center_loss_param {{ num_output: 5 center_filler {{ type: "xavier" }} }} }}"""


def test_a_net_of_caffe_face(tmp_path):
    made = run(tmp_path, FACE)
    (centers,) = [layer.layer.blobs[0] for layer in made.nodes if layer.param.type == "CenterLoss"]
    assert np.flatnonzero(np.abs(centers.diff).sum(1)).tolist() == [3]
