"""Commands around a net: each run once as a user would, and once on bad input (one line, exit code 1)."""

import csv
import math
import sys

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe as caffe
from scaffe.cli import main as cli
from scaffe.files.upgrade import upgrade_net
from scaffe.pictures.layout import lay_out
from scaffe.pictures.net_boxes import net_boxes
from scaffe.pictures.net_picture import LABEL_SIZE, picture_of
from scaffe.proto import caffe_pb2
from scaffe.svg import text_width
from tests.scaffe.pycaffe.pycaffe_nets import SMALL, pixels
from tests.scaffe.runs import EXAMPLE

LENET = str(EXAMPLE / "lenet_train_test.prototxt")


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.prototxt").write_text(SMALL)


def refused(capfd, *args):
    """Run a command that must fail with one line; returns the line."""
    capfd.readouterr()
    assert cli.main(list(args)) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("scaffe: ")]
    assert len(lines) == 1
    return lines[0]


# -- summary -----------------------------------------------------------------------------------------------
def test_summary(capfd):
    assert cli.main(["summary", "small.prototxt"]) == 0
    lines = {line.split()[0]: line.split() for line in capfd.readouterr().out.splitlines()}
    n_conv, n_ip = 3 * 2 * 9 + 3, 7 * 90 + 7
    assert lines["conv"][1:] == ["Convolution", "4x3x5x6", str(n_conv), "6.48k", "1.44k"]  # 360 outputs of 18 products
    assert lines["ip"][1:] == ["InnerProduct", "4x7", str(n_ip), "2.52k", "112"]
    assert lines["relu"][-1] == "0"
    assert lines["total"][1:3] == [str(n_conv + n_ip), "9k"]


def test_summary_without_the_data(capfd):
    assert cli.main(["summary", LENET, "-shape", "64,1,28,28", "-phase", "TRAIN"]) == 0
    out = capfd.readouterr().out
    assert "64x20x24x24" in out
    assert "431,080" in out


def test_summary_refuses(capfd):
    assert "no such file" in refused(capfd, "summary", "none.prototxt")
    assert "whole numbers" in refused(capfd, "summary", LENET, "-shape", "64,x")
    assert "from 1 to" in refused(capfd, "summary", LENET, "-shape", "0,1,2,3")


@pytest.mark.parametrize(("kind", "tops", "shapes"), [
    ("DenseImageData", 2, "2x3x8x12 2x1x8x12"),
    ("DenseImageData dense_image_data_param { label_divide_factor: 3 }", 2, "2x3x8x12 2x1x2x4"),
    ("ImageSegData", 3, "2x3x8x12 2x1x8x12 2x1x1x2"),
    ("AnnotatedData", 2, "2x3x8x12 1x1x2x8"),
    ("Data", 2, "2x3x8x12 2")])
def test_a_summary_without_data_has_labels_of_the_data_layers_kind(tmp_path, capfd, kind, tops, shapes):
    name, _, options = kind.partition(" ")
    top = " ".join(f'top: "t{i}"' for i in range(tops))
    (tmp_path / "net.prototxt").write_text(f'layer {{ name: "d" type: "{name}" {top} {options} }}')
    assert cli.main(["summary", str(tmp_path / "net.prototxt"), "-shape", "2,3,8,12"]) == 0
    assert capfd.readouterr().out.splitlines()[1].split()[:2 + tops] == ["d", "Input", *shapes.split()]


# -- draw_net ----------------------------------------------------------------------------------------------
def test_draw_net_as_svg(tmp_path):
    assert cli.main(["draw_net", LENET, "net.svg", "--rankdir", "TB", "--display_lrm"]) == 0
    text = (tmp_path / "net.svg").read_text()
    for name in ("mnist", "conv1", "Convolution 20", "Pooling MAX", "kernel 2 stride 2", "lr mult 1, 2", "accuracy"):
        assert f">{name}<" in text
    assert cli.main(["draw_net", LENET, "net.svg", "--phase", "TRAIN"]) == 0
    assert ">accuracy<" not in (tmp_path / "net.svg").read_text()


def test_draw_net_as_png(tmp_path):
    cv2 = pytest.importorskip("cv2")
    pytest.importorskip("resvg_py")
    assert cli.main(["draw_net", "small.prototxt", "net.png"]) == 0
    assert (cv2.imread(str(tmp_path / "net.png")) < 250).any()


SOURCES = """layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
        data_param { batch_size: 64 } }
layer { name: "t" type: "ImageData" top: "data" top: "label" include { phase: TEST } }
layer { name: "more" type: "Data" top: "extra" include { phase: TRAIN } data_param { batch_size: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "out" inner_product_param { num_output: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "out" bottom: "label" bottom: "extra" top: "loss" }
"""


def test_data_layers_of_two_phases_are_one_box_and_labels_say_what_boxes_do_not():
    boxes, arrows = net_boxes(upgrade_net(text_format.Parse(SOURCES, caffe_pb2.NetParameter())))
    assert [box.lines for box in boxes] == [("d / t", "TRAIN: Data batch 64", "TEST: ImageData"),
                                            ("more", "Data batch 2"), ("ip", "InnerProduct 3"),
                                            ("loss", "SoftmaxWithLoss"), ("loss",)]
    assert [(a.start, a.end, a.label) for a in arrows] == [(0, 2, "data"), (2, 3, "out"), (0, 3, "label"),
                                                           (1, 3, "extra"), (3, 4, "")]
    train, _ = net_boxes(upgrade_net(text_format.Parse(SOURCES, caffe_pb2.NetParameter())), caffe_pb2.TRAIN)
    assert train[0].lines == ("d", "Data batch 64")


@pytest.mark.parametrize("rankdir", ["TB", "BT", "LR", "RL"])
def test_labels_lie_on_no_box_and_on_no_other_label(rankdir):
    boxes, arrows = net_boxes(upgrade_net(text_format.Parse(SOURCES, caffe_pb2.NetParameter())))
    picture = picture_of(boxes, arrows, rankdir)
    areas = [(x, y - LABEL_SIZE, x + text_width(label, LABEL_SIZE), y) for label, (x, y) in picture.labels]
    assert len(areas) == 4
    areas += [(x - w / 2, y - h / 2, x + w / 2, y + h / 2) for _, (x, y), (w, h) in picture.boxes]
    for i, a in enumerate(areas):
        assert 0 <= a[0] < a[2] <= picture.width
        assert 0 <= a[1] < a[3] <= picture.height
        assert not [b for b in areas[:i] if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]


def test_draw_net_refuses(capfd):
    assert "must end in .svg or .png" in refused(capfd, "draw_net", LENET, "net.pdf")
    assert "no such file" in refused(capfd, "draw_net", "none.prototxt", "net.svg")


@pytest.mark.parametrize("rankdir", ["TB", "BT", "LR", "RL"])
def test_layout_keeps_boxes_apart_and_arrows_one_way(rankdir):
    rng = np.random.default_rng(0)
    n_boxes = 40
    extents = [(float(w), float(h)) for w, h in rng.uniform(20, 90, (n_boxes, 2))]
    arrows = sorted({(int(a), int(b)) for a, b in np.sort(rng.integers(0, n_boxes, (70, 2)), axis=1) if a < b})
    layout = lay_out(extents, arrows, rankdir)
    for i in range(n_boxes):
        for j in range(i):
            gaps = np.abs(np.subtract(layout.centres[i], layout.centres[j])) - np.add(extents[i], extents[j]) / 2
            assert gaps.max() > 1
    axis, sign = (0 if rankdir in ("LR", "RL") else 1), (1 if rankdir in ("TB", "LR") else -1)
    for (start, end), path in zip(arrows, layout.paths):
        steps = np.diff([point[axis] for point in path])
        assert (sign * steps > 0).all()
        assert path[0] == layout.centres[start]
        assert path[-1] == layout.centres[end]
    assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in layout.centres)


# -- parse_log ---------------------------------------------------------------------------------------------
LOG = """I1231 23:59:58.000000 7 solver.py:98] Solving LeNet
I1231 23:59:58.500000 7 test.py:34] Iteration 0, Testing net (#0)
I1231 23:59:59.000000 7 outputs.py:28]     Test net output #0: accuracy = 0.1
I1231 23:59:59.000000 7 outputs.py:28]     Test net output #1: loss = 2.5 (* 1 = 2.5 loss)
I1231 23:59:59.500000 7 display.py:36] Iteration 0 (0 iter/s, 0s/2 iters), loss = 2.4
I1231 23:59:59.500000 7 outputs.py:28]     Train net output #0: loss = 2.4 (* 1 = 2.4 loss)
I1231 23:59:59.500000 7 display.py:38] Iteration 0, lr = 0.01
not a line of the log
I0101 00:00:03.000000 7 display.py:36] Iteration 2 (1 iter/s, 2s/2 iters), loss = 1e-05
I0101 00:00:03.000000 7 outputs.py:28]     Train net output #0: loss = 1e-05 (* 1 = 1e-05 loss)
I0101 00:00:03.000000 7 display.py:38] Iteration 2, lr = 0.005
I0101 00:00:04.000000 7 test.py:34] Iteration 2, Testing net (#0)
I0101 00:00:04.000000 7 outputs.py:28]     Test net output #0: accuracy = 0.5
I0101 00:00:04.000000 7 outputs.py:28]     Test net output #1: loss = 1.5 (* 1 = 1.5 loss)
"""


def test_parse_log(tmp_path):
    (tmp_path / "run.log").write_text(LOG)
    assert cli.main(["parse_log", "run.log", "."]) == 0
    with (tmp_path / "run.log.train").open() as file:
        train = list(csv.reader(file))
    with (tmp_path / "run.log.test").open() as file:
        test = list(csv.reader(file))
    assert train == [["NumIters", "Seconds", "LearningRate", "loss"], ["0.0", "1.5", "0.01", "2.4"],
                     ["2.0", "5.0", "0.01", "1e-05"]]
    assert test == [["NumIters", "Seconds", "LearningRate", "accuracy", "loss"], ["0.0", "1.0", "0.005", "0.1", "2.5"],
                    ["2.0", "6.0", "0.005", "0.5", "1.5"]]


def test_parse_log_of_outputs_of_many_elements_and_of_logs_that_break_off(tmp_path):
    """As Caffe's: later elements of one name take rows of their own but for the first iteration; no half rows."""
    head = "I0101 00:00:0{}.000000 7 a.py:1] "
    lines = [head.format(0) + "Solving n"]
    for i in range(3):
        lines.append(head.format(i + 1) + f"Iteration {i}, Testing net (#0)")
        lines += [head.format(i + 1) + f"    Test net output #{k}: {name} = {10 * i + k}"
                  for k, name in enumerate(("p", "p", "q"))]
    (tmp_path / "log").write_text("\n".join(lines[:-1]) + "\n")
    assert cli.main(["parse_log", "log", "."]) == 0
    with (tmp_path / "log.test").open() as file:
        rows = [(row["NumIters"], row["p"], row["q"]) for row in csv.DictReader(file)]
    assert rows == [("0.0", "1.0", "2.0"), ("1.0", "11.0", "12.0")]
    (tmp_path / "log").write_text("\n".join(lines[:5]) + "\n")
    assert cli.main(["parse_log", "log", "."]) == 0
    assert (tmp_path / "log.test").read_text().splitlines()[1:] == ["0.0,1.0,nan,1.0,2.0"]


RCNN_LOG = """+ echo Logging output to faster_rcnn.txt
Solving...
I0502 12:00:01.000000  7 net.cpp:84] Creating Layer input-data
I0502 12:00:02.500000  7 solver.cpp:229] Iteration 0, loss = 4.5
I0502 12:00:02.500000  7 solver.cpp:245]     Train net output #0: loss_bbox = 0.25 (* 1 = 0.25 loss)
I0502 12:00:02.500000  7 sgd_solver.cpp:106] Iteration 0, lr = 0.001
speed: 1.250s / iter
I0502 12:00:27.500000  7 solver.cpp:229] Iteration 20, loss = 1.5
I0502 12:00:27.500000  7 solver.cpp:245]     Train net output #0: loss_bbox = 0.125 (* 1 = 0.125 loss)
I0502 12:00:27.500000  7 sgd_solver.cpp:106] Iteration 20, lr = 0.001
done solving
"""


def test_parse_log_and_report_of_a_log_without_a_line_solving(tmp_path, capfd):
    """py-faster-rcnn calls ``step``, and says "Solving..." itself, without a time."""
    (tmp_path / "run.log").write_text(RCNN_LOG)
    (tmp_path / "other.log").write_text("I0502 12:00:01.000000 7 caffe.cpp:290] Batch 0, accuracy = 0.5\n")
    assert cli.main(["parse_log", "run.log", "."]) == 0
    with (tmp_path / "run.log.train").open() as file:
        assert list(csv.reader(file)) == [["NumIters", "Seconds", "LearningRate", "loss_bbox"],
                                          ["0.0", "0.0", "0.001", "0.25"], ["20.0", "25.0", "0.001", "0.125"]]
    assert cli.main(["report", ".", "-output", "page.html"]) == 0
    assert "loss_bbox" in (tmp_path / "page.html").read_text()
    assert "no line 'Solving ...' nor 'Iteration ...'" in refused(capfd, "parse_log", "other.log", ".")
    assert "neither a log" in refused(capfd, "report", "other.log")


def test_parse_log_of_training_by_step(tmp_path, monkeypatch):
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }'
        'layer { name: "l" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 1 } }'
        'layer { name: "s" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }')
    (tmp_path / "s").write_text('net: "net.prototxt" base_lr: 0.5 lr_policy: "fixed" display: 2 max_iter: 4')
    monkeypatch.setattr(caffe.log, "_folder", str(tmp_path))
    monkeypatch.setattr(caffe.log, "_file", None)
    caffe.SGDSolver("s").step(4)
    assert cli.main(["parse_log", "caffe.INFO", "."]) == 0
    with (tmp_path / "caffe.INFO.train").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["NumIters"], row["LearningRate"]) for row in rows] == [("0.0", "0.5"), ("2.0", "0.5")]


def test_parse_log_of_a_real_run(tmp_path, capfd):
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 } } }'
        'layer { name: "p" type: "Parameter" top: "p" parameter_param { shape { dim: 2 } } }'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "x" top: "loss" }')
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.5 lr_policy: "fixed" max_iter: 4 '
                                              'display: 2 snapshot_prefix: "run" snapshot_after_train: false')
    assert cli.main(["train", "-solver", "solver.prototxt"]) == 0
    (tmp_path / "log").write_text(capfd.readouterr().err)
    assert cli.main(["parse_log", "log", ".", "--delimiter", ";"]) == 0
    rows = (tmp_path / "log.train").read_text().splitlines()
    assert rows[0] == "NumIters;Seconds;LearningRate;loss"
    assert [row.split(";")[0] for row in rows[1:]] == ["0.0", "2.0"]
    assert not math.isnan(float(rows[1].split(";")[2]))


def test_parse_log_refuses(capfd, tmp_path):
    (tmp_path / "other").write_text("hello\n")
    assert "a solver's log was expected" in refused(capfd, "parse_log", "other", ".")
    assert "no such file" in refused(capfd, "parse_log", "none", ".")


# -- extract_features --------------------------------------------------------------------------------------
FEATURES = """layer { name: "d" type: "Data" top: "data" top: "label"
                      data_param { source: "%s" batch_size: 20 backend: LMDB } transform_param { scale: 0.01 } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 14 stride: 14 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 3 } }
"""


@pytest.fixture
def features(tmp_path, databases):
    (tmp_path / "f.prototxt").write_text(FEATURES % (databases / "test"))
    net = caffe.Net("f.prototxt", caffe.TEST)
    net.params["ip"][0].data[...] = np.arange(12).reshape(3, 4)
    net.save("f.caffemodel")
    return net


@pytest.mark.parametrize("flags", [[], ["-memory", "2GB"]])
def test_extract_features(features, flags):
    import lmdb

    files = ["f.caffemodel", "f.prototxt", "pool,ip", "pools,ips"]
    assert cli.main(["extract_features", *files, "3", "lmdb", *flags]) == 0
    expected = {"pools": [], "ips": []}
    for _ in range(3):
        features.forward()
        expected["pools"] += list(features.blobs["pool"].data.copy())
        expected["ips"] += list(features.blobs["ip"].data.reshape(20, 3, 1, 1).copy())
    for name, values in expected.items():
        with lmdb.open(name, readonly=True) as env, env.begin() as transaction:
            records = list(transaction.cursor())
        assert [key for key, _ in records] == [f"{i:010d}".encode() for i in range(60)]
        found = [caffe.io.datum_to_array(caffe_pb2.Datum.FromString(value)) for _, value in records]
        np.testing.assert_allclose(found, values, rtol=1e-6)


def test_extract_features_as_leveldb(features):
    plyvel = pytest.importorskip("plyvel")
    assert cli.main(["extract_features", "f.caffemodel", "f.prototxt", "ip", "ips", "2", "leveldb", "CPU"]) == 0
    with plyvel.DB("ips") as database:
        found = [caffe.io.datum_to_array(caffe_pb2.Datum.FromString(value)) for _, value in database]
    features.forward()
    assert len(found) == 40
    np.testing.assert_allclose(found[:20], features.blobs["ip"].data.reshape(20, 3, 1, 1), rtol=1e-6)


def test_extract_features_refuses(features, capfd, tmp_path):
    start = ["extract_features", "f.caffemodel", "f.prototxt"]
    assert "no blob 'fc7'; it has: data, label" in refused(capfd, *start, "fc7", "db", "1", "lmdb")
    assert "as many databases as blobs" in refused(capfd, *start, "ip", "a,b", "1", "lmdb")
    assert "99" in refused(capfd, *start, "ip", "db", "1", "lmdb", "GPU", "99")
    assert cli.main([*start, "ip", "db", "1", "redis"]) == 2
    assert "kind must be one of lmdb, leveldb, got 'redis'" in capfd.readouterr().err
    (tmp_path / "db").mkdir()
    assert "exists already" in refused(capfd, *start, "ip", "db", "1", "lmdb")
    assert not (tmp_path / "a").exists()


def test_features_are_whole_or_absent(features, capfd, tmp_path):
    """One database that cannot be made ends the run; the other is not left half-written."""
    args = ["extract_features", "f.caffemodel", "f.prototxt", "ip,pool", "whole,no/such/folder", "300", "lmdb"]
    assert "no/such/folder" in refused(capfd, *args)
    assert not (tmp_path / "whole").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


# -- device_query ------------------------------------------------------------------------------------------
def test_device_query(capfd):
    assert cli.main(["device_query"]) == 0
    out = capfd.readouterr().out
    for start in ("cores: ", "oneDNN: ", "MPI: ", "GPUs: ", "h5py: "):
        assert any(line.startswith(start) or start == "oneDNN: " and "libdnnl" in line for line in out.splitlines())


def test_device_query_refuses(capfd):
    assert "there is no GPU 99" in refused(capfd, "device_query", "-gpu", "99")
    assert "there is no GPU x" in refused(capfd, "device_query", "-gpu", "x")


# -- export-onnx -------------------------------------------------------------------------------------------
EXPORTED = """input: "data" input_shape { dim: 2 dim: 4 dim: 11 dim: 13 }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 6 kernel_h: 3
        kernel_w: 2 stride: 2 pad: 1 group: 2 weight_filler { type: "xavier" } bias_filler { type: "uniform" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "scale" type: "Scale" bottom: "bn" top: "bn" scale_param { bias_term: true
        filler { type: "uniform" min: 0.5 max: 2 } bias_filler { type: "uniform" } } }
layer { name: "relu" type: "ReLU" bottom: "bn" top: "bn" relu_param { negative_slope: 0.1 } }
layer { name: "max" type: "Pooling" bottom: "bn" top: "max" pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "ave" type: "Pooling" bottom: "bn" top: "ave"
        pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
layer { name: "crop" type: "Slice" bottom: "ave" top: "ave1" top: "ave2" slice_param { axis: 2 slice_point: 3 } }
layer { name: "lrn" type: "LRN" bottom: "max" top: "lrn" lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 } }
layer { name: "prelu" type: "PReLU" bottom: "lrn" top: "lrn" }
layer { name: "up" type: "Deconvolution" bottom: "lrn" top: "up" convolution_param { num_output: 3 kernel_size: 4
        stride: 2 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "sum" type: "Eltwise" bottom: "lrn" bottom: "max" top: "sum" eltwise_param { coeff: 2 coeff: -1 } }
layer { name: "cat" type: "Concat" bottom: "sum" bottom: "lrn" top: "cat" }
layer { name: "drop" type: "Dropout" bottom: "cat" top: "cat" }
layer { name: "ip" type: "InnerProduct" bottom: "cat" top: "ip" inner_product_param { num_output: 5
        weight_filler { type: "xavier" } bias_filler { type: "uniform" } } }
layer { name: "power" type: "Power" bottom: "ip" top: "power" power_param { power: 2 scale: 0.5 shift: 1 } }
layer { name: "prob" type: "Softmax" bottom: "power" top: "prob" }
"""


def test_export_onnx(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    (tmp_path / "net.prototxt").write_text(EXPORTED)
    caffe.set_random_seed(1)
    net = caffe.Net("net.prototxt", caffe.TEST)
    for blob, value in zip(net.params["bn"], (0.2, 3.0, 2.0)):
        blob.data[...] = value + 0.1 * np.arange(blob.count) * (blob.count > 1)
    net.save("w.caffemodel")
    assert cli.main(["export-onnx", "net.prototxt", "w.caffemodel", "net.onnx"]) == 0
    x = np.random.default_rng(0).standard_normal((2, 4, 11, 13)).astype(np.float32)
    expected = net.forward(data=x)
    session = onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert sorted(names) == sorted(expected) == ["ave1", "ave2", "prob", "up"]
    for name, found in zip(names, session.run(None, {"data": x})):
        np.testing.assert_allclose(found, expected[name], rtol=2e-4, atol=1e-5, err_msg=name)


def test_export_onnx_refuses(capfd, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    (tmp_path / "n.prototxt").write_text(SMALL + 'layer { name: "o" type: "Im2col" bottom: "data" top: "o" '
                                           'convolution_param { kernel_size: 3 } }')
    net = caffe.Net("n.prototxt", caffe.TEST)
    net.save("w.caffemodel")
    said = refused(capfd, "export-onnx", "n.prototxt", "w.caffemodel", "x.onnx")
    assert "layer 'o' (Im2col) has no ONNX form" in said
    assert "none.caffemodel" in refused(capfd, "export-onnx", "n.prototxt", "none.caffemodel", "x.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install onnx" in refused(capfd, "export-onnx", "small.prototxt", "w.caffemodel", "x.onnx")
    assert not (tmp_path / "x.onnx").exists()
    assert net.forward(data=pixels())["o"].shape[0] == 4
