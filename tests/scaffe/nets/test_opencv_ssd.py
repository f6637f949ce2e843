"""An SSD written here detects in OpenCV's DNN module what it detects here."""

from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe as caffe
from scaffe.proto import caffe_pb2
from tests.scaffe.runs import ROOT

cv2 = pytest.importorskip("cv2", reason="needs opencv-python-headless<5")
NET = ROOT / "examples" / "shapes" / "ssd_train_test.prototxt"


def deploy(n_images: int, **options) -> str:
    """The example as people deploy it: images in, detections out."""
    net = text_format.Parse(NET.read_text(), caffe_pb2.NetParameter())
    for layer in [layer for layer in net.layer if layer.type in ("AnnotatedData", "MultiBoxLoss", "DetectionEvaluate")]:
        net.layer.remove(layer)
    for layer in net.layer:
        del layer.include[:]
        if layer.type == "DetectionOutput":
            layer.detection_output_param.MergeFrom(caffe_pb2.DetectionOutputParameter(**options))
    text = text_format.MessageToString(net)
    shape = " ".join(f"dim: {n}" for n in (n_images, 3, 96, 96))
    head = f'layer {{ name: "in" type: "Input" top: "data" input_param {{ shape {{ {shape} }} }} }}\n'
    return head + text.removeprefix('name: "shapes_ssd"\n')


@pytest.mark.parametrize(("n_images", "options"), [
    (1, {}), (2, {"code_type": 1}), (1, {"keep_top_k": 7, "confidence_threshold": 0.38}),
    (2, {"nms_param": caffe_pb2.NonMaximumSuppressionParameter(nms_threshold=0.7, top_k=50)})])
def test_opencv_detects_the_same(n_images, options, tmp_path):
    prototxt, weights = str(tmp_path / "deploy.prototxt"), str(tmp_path / "net.caffemodel")
    Path(prototxt).write_text(deploy(n_images, **options))
    net = caffe.Net(prototxt, caffe.TEST)
    rng = np.random.RandomState(3)
    for blobs in net.params.values():
        blobs[0].data[...] = rng.randn(*blobs[0].data.shape) * np.sqrt(2 / blobs[0].data[0].size)
        blobs[1].data[...] = rng.randn(*blobs[1].data.shape) * 0.1
    net.save(weights)
    image = rng.uniform(-1, 1, net.blobs["data"].data.shape).astype(np.float32)

    theirs = cv2.dnn.readNetFromCaffe(prototxt, weights)
    theirs.setInput(image)
    wanted = theirs.forward("detection_out").reshape(-1, 7)
    ours = net.forward(data=image)["detection_out"].reshape(-1, 7)
    assert len(wanted) > 5
    assert ours.shape == wanted.shape
    np.testing.assert_allclose(ours, by_item_and_label(wanted), atol=1e-5)


CLUSTERED = """input: "data" input_shape { dim: 1 dim: 3 dim: 16 dim: 30 }
layer { name: "p" type: "Pooling" bottom: "data" top: "p" pooling_param { kernel_size: 8 stride: 8 } }
layer { name: "boxes" type: "PriorBoxClustered" bottom: "p" bottom: "data" top: "boxes" prior_box_param {
    width: 4.5 width: 9 height: 6 height: 3.25 step: 8 clip: false variance: [0.1, 0.1, 0.2, 0.2] } }"""


def test_opencv_places_boxes_of_given_sizes_the_same(tmp_path):
    (tmp_path / "net.prototxt").write_text(CLUSTERED)
    theirs = cv2.dnn.readNetFromCaffe(str(tmp_path / "net.prototxt"))
    theirs.setInput(np.zeros((1, 3, 16, 30), np.float32))
    ours = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST).forward()["boxes"]
    np.testing.assert_allclose(ours, theirs.forward("boxes"), atol=1e-6)


def by_item_and_label(rows: np.ndarray) -> np.ndarray:
    """The rows of a DetectionOutput in Caffe's order; OpenCV's go by score alone once ``keep_top_k`` cuts some off."""
    return rows[np.lexsort((-rows[:, 2], rows[:, 1], rows[:, 0]))]
