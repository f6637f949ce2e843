"""Faster R-CNN and R-FCN, scaled down: they learn to find drawn shapes, and OpenCV computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import scaffe as caffe
from tests.scaffe.nets import rcnn_nets as nets
from tests.scaffe.nets.rcnn_layers import SIDE, draw, moved, overlaps

SOLVER = """train_net: "{folder}/train.prototxt" base_lr: 0.002 type: "Adam" momentum: 0.9 momentum2: 0.999
lr_policy: "step" stepsize: 200 gamma: 0.2 max_iter: 10000 display: 0 random_seed: 3 snapshot_after_train: false"""
KINDS = {
    "faster_rcnn": (nets.faster_rcnn_train(True), nets.faster_rcnn_test(True)),
    "faster_rcnn with layers in Python": (nets.faster_rcnn_train(False), nets.faster_rcnn_test(False)),
    "mask_rcnn's roi_align": (nets.faster_rcnn_train(True, nets.ROI_ALIGN),
                              nets.faster_rcnn_test(True, nets.ROI_ALIGN)),
    "rfcn": (nets.rfcn_train(), nets.rfcn_test()),
}


def found(net: caffe.Net, image: np.ndarray) -> tuple[int, np.ndarray]:
    """The class and the box of the region with the best score."""
    net.blobs["data"].data[...] = image
    net.blobs["im_info"].data[...] = [SIDE, SIDE, 1]
    net.forward()
    scores = net.blobs["cls_prob"].data.reshape(-1, 3)
    region, kind = np.unravel_index(scores[:, 1:].argmax(), (len(scores), 2))
    deltas = net.blobs["bbox_pred"].data.reshape(len(scores), -1, 4)
    delta = deltas[region, min(kind + 1, deltas.shape[1] - 1)]
    return int(kind) + 1, moved(net.blobs["rois"].data[region : region + 1, 1:], delta[None])


@pytest.mark.parametrize("kind", ["faster_rcnn", "rfcn", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in (
    "faster_rcnn with layers in Python", "mask_rcnn's roi_align"))])
def test_it_learns_to_find_drawn_shapes(kind: str, tmp_path: Path) -> None:
    train, test = KINDS[kind]
    (tmp_path / "train.prototxt").write_text(train)
    (tmp_path / "test.prototxt").write_text(test)
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(folder=tmp_path))
    solver = caffe.get_solver(str(tmp_path / "solver.prototxt"))
    solver.step(300)
    net = caffe.Net(str(tmp_path / "test.prototxt"), caffe.TEST)
    net.share_with(solver.net)
    right = 0
    for seed in range(1000, 1040):
        image, box = draw(seed)
        kind_found, where = found(net, image)
        right += kind_found == box[0, 4] and overlaps(where, box[0])[0] > 0.5
    assert right >= 26  # untrained: none or one


@pytest.mark.parametrize("name", ["faster_rcnn", "rfcn"])
def test_opencv_detects_the_same(name: str, tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="needs opencv-python-headless<5")
    rng = np.random.RandomState(7)
    prototxt, weights = str(tmp_path / "test.prototxt"), str(tmp_path / "net.caffemodel")
    Path(prototxt).write_text(KINDS[name][1].replace("min_size: 4", "min_size: 1"))
    net = caffe.Net(prototxt, caffe.TEST)
    for blobs in net.params.values():
        blobs[0].data[...] = rng.randn(*blobs[0].data.shape) * np.sqrt(2 / blobs[0].data[0].size)
        blobs[1].data[...] = rng.randn(*blobs[1].data.shape) * 0.1
    net.params["rpn_bbox_pred"][0].data[...] *= 0.2
    net.save(weights)
    image, info = draw(5)[0].astype(np.float32), np.array([[SIDE, SIDE, 1]], np.float32)
    theirs = cv2.dnn.readNetFromCaffe(prototxt, weights)
    theirs.setInput(image, "data")
    theirs.setInput(info, "im_info")
    layers = {"rois": "proposal", "cls_prob": "cls_prob", "bbox_pred": "ave_bbox" if name == "rfcn" else "bbox_pred"}
    wanted = dict(zip(layers, theirs.forward(list(layers.values()))))
    ours = net.forward(data=image, im_info=info, blobs=["rois", "bbox_pred"])
    for blob, values in wanted.items():
        atol = 1e-5 * np.abs(values).max()
        np.testing.assert_allclose(ours[blob].reshape(-1), values.reshape(-1), rtol=1e-5, atol=atol)
