"""Files written here load in OpenCV's DNN module, and its forward gives the same numbers."""

import sys
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe as caffe
from scaffe.proto import caffe_pb2

cv2 = pytest.importorskip("cv2", reason="needs opencv-python-headless<5")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
from nets.prototxt import prototxt  # noqa: E402


def deploy(name: str) -> str:
    """The net as people deploy it: one image in, probabilities out, no label, no loss, no auxiliary head."""
    net = text_format.Parse(prototxt(name, 1), caffe_pb2.NetParameter())
    losses = [layer for layer in net.layer if layer.type == "SoftmaxWithLoss"]
    scores = losses[-1].bottom[0]
    for layer in [layer for layer in net.layer if layer.top[0].startswith("loss")]:
        net.layer.remove(layer)
    net.layer[0].top.remove("label")
    del net.layer[0].input_param.shape[1]
    net.layer.add(name="prob", type="Softmax", bottom=[scores], top=["prob"])
    return text_format.MessageToString(net)


def spread_weights(net: caffe.Net, rng: np.random.RandomState) -> None:
    """Weights that keep the size of the signal, so that a wrong one shows; biases of every size."""
    for blobs in net.params.values():
        fan_in = blobs[0].data[0].size
        blobs[0].data[...] = rng.randn(*blobs[0].data.shape) * np.sqrt(2 / fan_in)
        blobs[1].data[...] = rng.randn(*blobs[1].data.shape) * 0.1


@pytest.mark.parametrize("name", [
    "lenet", "cifar10_quick", pytest.param("caffenet", marks=pytest.mark.thorough), "googlenet"])
def test_opencv_computes_the_same(name, tmp_path):
    rng = np.random.RandomState(7)
    prototxt_path, weights_path = str(tmp_path / "deploy.prototxt"), str(tmp_path / "net.caffemodel")
    Path(prototxt_path).write_text(deploy(name))
    net = caffe.Net(prototxt_path, caffe.TEST)
    spread_weights(net, rng)
    net.save(weights_path)
    image = rng.uniform(-1, 1, net.blobs["data"].data.shape).astype(np.float32)

    theirs = cv2.dnn.readNetFromCaffe(prototxt_path, weights_path)
    theirs.setInput(image)
    scores = list(net.blobs)[-2]  # before the softmax, where nothing is squashed
    wanted = dict(zip((scores, "prob"), theirs.forward([scores, "prob"])))
    ours = net.forward(data=image, blobs=[scores])

    assert np.ptp(wanted[scores]) > 0.1  # a signal came through
    for blob, values in wanted.items():
        np.testing.assert_allclose(ours[blob].reshape(values.shape), values, rtol=1e-4,
                                   atol=1e-4 * np.abs(values).max())
