"""tests/zoo.py runs nets with their data replaced, and says what fails."""

from __future__ import annotations

import pytest

from tests import zoo
from tests.scaffe.nets import rcnn_nets as nets

NET = """layer { name: "d" type: "Data" top: "data" top: "label" transform_param { crop_size: 9 } }
layer { name: "i" type: "innerproduct" bottom: "data" top: "i" inner_product_param { num_output: 3 } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "i" bottom: "label" top: "l" }"""


def test_failures_and_reasons(tmp_path, capsys, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "good.prototxt").write_text(NET)
    (tmp_path / "rcnn.pt").write_text(nets.faster_rcnn_train(True).replace("'AnchorTarget'", "'NoSuch'"))
    (tmp_path / "bad.prototxt").write_text(NET.replace("innerproduct", "Correlation"))
    (tmp_path / "solver.prototxt").write_text('net: "x" base_lr: 1')
    monkeypatch.setattr("sys.argv", ["zoo", str(tmp_path), "-side", "64", "-phase", "train"])
    zoo.main()
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{tmp_path}/bad.prototxt (train): layer 'i' (Correlation): unknown")
    assert said[1].startswith(f"{tmp_path}/rcnn.pt (train): layer 'rpn-data' (Python): ")
    assert said[3] == "3 nets, 2 failures"


def test_an_image_of_another_shape_where_the_usual_one_does_not_fit(tmp_path, capsys, monkeypatch):
    gray = NET.replace("crop_size: 9", "").replace('layer { name: "i"', """layer { name: "r" type: "Reshape"
        bottom: "data" top: "row" reshape_param { shape { dim: [0, 784] } } }
        layer { name: "i\"""").replace('"innerproduct" bottom: "data"', '"innerproduct" bottom: "row"')
    (tmp_path / "mnist.prototxt").write_text(gray)
    monkeypatch.setattr("sys.argv", ["zoo", str(tmp_path)])
    zoo.main()
    assert capsys.readouterr().out.splitlines()[1] == "1 nets, 0 failures"


@pytest.mark.parametrize("head", ["ROI_POOLING", "ROI_ALIGN"])
def test_an_image_for_python_layers(head):
    message = zoo.parse_text(nets.faster_rcnn_train(True, getattr(nets, head)), zoo.caffe_pb2.NetParameter)
    zoo.run(zoo.with_dummy_data(message, 1, (3, 64, 64)), 0)
