"""Every command once as it should be, and once on bad input: one line on standard error and a code above 0.

What a command makes is looked at in the tests of its own; this one sees that none is forgotten.
"""

import contextlib
import json

import numpy as np
import pytest

from scaffe.cli import main as cli
from scaffe.data.records.idx import read_idx, write_idx
from tests.scaffe.runs import EXAMPLE

NET = """name: "small"
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
LEARN = """layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "loss" }
"""
RUNS = {
    "bench": "bench reduce -m 1024 -x 1 -i 2",
    "compute_image_mean": "compute_image_mean -backend=lmdb db mean.binaryproto",
    "convert_annoset": "convert_annoset --anno_type=detection --label_type=txt --label_map_file=map.prototxt "
                       "--encoded=True --check_label=True ./ annotated.txt annotated_db",
    "convert_cifar_data": "convert_cifar_data cifar . lmdb",
    "convert_imageset": "convert_imageset --resize_height=4 --resize_width=4 ./ list.txt images_db",
    "convert_leveldb": "convert_leveldb leveldb from_leveldb",
    "convert_mnist": "convert_mnist -force mnist test db2",
    "convert_mnist_data": "convert_mnist_data mnist/t10k-images-idx3-ubyte mnist/t10k-labels-idx1-ubyte db3",
    "create_label_map": "create_label_map --include_background=true classes.txt new_map.prototxt",
    "device_query": "device_query",
    "doctor": "doctor",
    "draw_net": "draw_net net.prototxt net.svg --rankdir=TB --display_lrm",
    "export_onnx": "export-onnx net.prototxt run_iter_2.caffemodel net.onnx",
    "export_torch": "export-torch net.prototxt run_iter_2.caffemodel net.py",
    "extract_features": "extract_features run_iter_2.caffemodel features.prototxt data,pool features,pools 2 lmdb CPU",
    "get_image_size": "get_image_size ./ annotated.txt sizes.txt",
    "install_tools": "install_tools build",
    "join": "join -h",  # nothing else, where no run has started it
    "parse_log": "parse_log log . --verbose",
    "plot": "plot trace.json -output trace.svg",
    "report": "report log trace.json -output report.html",
    "scaling": "scaling -strong train.log -json scaling.json -plot scaling.svg",
    "simulate": "simulate --ranks 4 --ranks-per-node 2 --max-bytes 1024 --out figures",
    "summary": "summary net.prototxt",
    "test": "test -model learn.prototxt -weights run_iter_2.caffemodel -iterations 2",
    "time": "time -model learn.prototxt -iterations 2",
    "train": "train -solver solver.prototxt",
    "tune": "tune -o table.json -c reduce -m 1024 -x 1 -i 2",
    "upgrade_net_proto_binary": "upgrade_net_proto_binary run_iter_2.caffemodel new.caffemodel",
    "upgrade_net_proto_text": "upgrade_net_proto_text net.prototxt new.prototxt",
    "upgrade_solver_proto_text": "upgrade_solver_proto_text solver.prototxt new_solver.prototxt",
    "warm": "warm",
}
BAD = {
    "bench": "bench redcue", "compute_image_mean": "compute_image_mean no_db", "warm": "warm up",
    "convert_annoset": "convert_annoset --anno_type=detection / none.txt db9",
    "create_label_map": "create_label_map none.txt x", "get_image_size": "get_image_size / none.txt x",
    "convert_cifar_data": "convert_cifar_data none .", "convert_imageset": "convert_imageset / none.txt db4",
    "convert_leveldb": "convert_leveldb none db5", "convert_mnist": "convert_mnist none test db6",
    "convert_mnist_data": "convert_mnist_data log log db7", "device_query": "device_query -gpu 99",
    "doctor": "doctor now",
    "draw_net": "draw_net log net.svg", "export_onnx": "export-onnx log run_iter_2.caffemodel net.onnx",
    "export_torch": "export-torch log run_iter_2.caffemodel net.py",
    "extract_features": "extract_features log features.prototxt pool db8 2 lmdb",
    "install_tools": "install_tools log", "join": "join", "parse_log": "parse_log net.prototxt .", "plot": "plot log",
    "report": "report net.prototxt",
    "scaling": "scaling -weak log", "simulate": "simulate --ranks 0", "summary": "summary log",
    "test": "test -model learn.prototxt -weights log",
    "time": "time -model log", "train": "train -solver log", "tune": "tune -c redcue -o table2.json",
    "upgrade_net_proto_binary": "upgrade_net_proto_binary log x", "upgrade_net_proto_text":
    "upgrade_net_proto_text log x", "upgrade_solver_proto_text": "upgrade_solver_proto_text log x",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, databases):
    """Everything that the command lines above name."""
    plyvel, cv2 = pytest.importorskip("plyvel"), pytest.importorskip("cv2")
    folder = tmp_path_factory.mktemp("commands")
    (folder / "net.prototxt").write_text(NET)
    (folder / "learn.prototxt").write_text(LEARN)
    (folder / "features.prototxt").write_text(
        'layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "db" batch_size: 3 } }'
        'layer { name: "p" type: "Pooling" bottom: "data" top: "pool" pooling_param { global_pooling: true } }')
    (folder / "solver.prototxt").write_text('net: "learn.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 2 '
                                            'snapshot_prefix: "run"')
    (folder / "log").write_text("I0101 00:00:00.000000 7 solver.py:98] Solving\n"
                                "I0101 00:00:01.000000 7 x.py:9] Iteration 0, loss = 1\n")
    (folder / "train.log").write_text("".join(f"I0101 00:00:0{i}.000000 7 x.py:9] Iteration {i} (5 iter/s, 0.2s/1 "
                                              "iters), loss = 1\n" for i in range(5))
                                      + "I0101 00:00:09.000000 7 x.py:9] "
                                      "Training on 2 rank(s), 64 images an iteration\n"
                                      "I0101 00:00:09.000000 7 x.py:9] Summary: 5 iterations in 1.0 s on 2 rank(s), "
                                      "9 images/s; data 1%\n")
    (folder / "trace.json").write_text(json.dumps({"traceEvents": [
        {"ph": "X", "name": "forward", "cat": "forward", "pid": 0, "tid": 0, "ts": 0, "dur": 5}]}))
    (folder / "mnist").mkdir()
    for what, n_axes in (("images-idx3", 3), ("labels-idx1", 1)):
        write_idx(folder / f"mnist/t10k-{what}-ubyte", read_idx(EXAMPLE / f"t10k-{what}-ubyte.gz", n_axes)[:20])
    (folder / "cifar").mkdir()
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (folder / "cifar" / name).write_bytes(bytes(3073))
    cv2.imwrite(str(folder / "a.png"), np.zeros((3, 5, 3), np.uint8))
    (folder / "list.txt").write_text("a.png 1\n")
    (folder / "annotated.txt").write_text("a.png a.txt\n")
    (folder / "a.txt").write_text("1 0 0 2 2\n")
    (folder / "classes.txt").write_text("cat\ndog\n")
    (folder / "map.prototxt").write_text('item { name: "cat" label: 1 }')
    (folder / "db").symlink_to(databases / "test")
    with plyvel.DB(str(folder / "leveldb"), create_if_missing=True) as database:
        database.put(b"00000000", b"\x08\x01")
    with contextlib.chdir(folder):
        assert cli.main(RUNS["train"].split()) == 0  # other commands read the weights that it writes
    return folder


@pytest.fixture
def said(folder, monkeypatch, capfd):
    """Runs a command line there. Gives its code and what it wrote on standard error."""
    def run(line):
        monkeypatch.chdir(folder)
        capfd.readouterr()
        try:
            code = cli.main(line.split())
        except SystemExit as ended:
            code = ended.code
        return code, capfd.readouterr().err

    return run


def test_no_command_is_forgotten():
    assert sorted(RUNS) == sorted(BAD) == cli.command_names()
    assert all(line.split()[0].replace("-", "_") == name for table in (RUNS, BAD) for name, line in table.items())


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.thorough) if name == "warm" else name
                                  for name in sorted(RUNS)])  # `make venv` runs it, too
def test_runs(said, name):
    code, err = said(RUNS[name])
    assert code == 0, err


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_input_is_one_line(said, name):
    code, err = said(BAD[name])
    lines = [line for line in err.splitlines() if line and not line.startswith(("I", "W"))]
    assert code in (1, 2)
    assert "Traceback" not in err
    assert len(lines) == 1, err


@pytest.mark.parametrize("name", sorted(RUNS))
def test_help_says_how(said, name, capfd):
    code, err = said(f"{RUNS[name].split()[0]} -h")
    assert (code, err) == (0, "")
