"""People's shell scripts with only the programs' place changed: what Caffe's MNIST and CIFAR-10 examples run.

With CAFFE_TREE=/path/to/caffe the scripts of that tree's own examples run too, in a copy, with fewer iterations.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scaffe.cli import main as cli
from scaffe.proto import caffe_pb2
from tests.scaffe.caffe_tree import make_tree, shell, shorten
from tests.scaffe.runs import NET

MNIST = """set -e
BACKEND="lmdb"
rm -rf examples/mnist/mnist_train_$BACKEND examples/mnist/mnist_test_$BACKEND
for part in train t10k; do
  short=test; if [ $part = train ]; then short=train; fi
  build/examples/mnist/convert_mnist_data.bin data/mnist/$part-images-idx3-ubyte data/mnist/$part-labels-idx1-ubyte \\
    examples/mnist/mnist_${short}_$BACKEND --backend=${BACKEND}
done
./build/tools/caffe train --solver=examples/mnist/solver.prototxt $@
./build/tools/caffe.bin test -model examples/mnist/net.prototxt -weights=examples/mnist/run_iter_6.caffemodel \\
  -iterations 2 -logtostderr=1
GLOG_minloglevel=2 build/tools/caffe time --model=examples/mnist/net.prototxt --iterations=1 --phase TEST
"""
CIFAR = """set -e
TOOLS=./build/tools
rm -rf examples/cifar10/cifar10_train_lmdb examples/cifar10/cifar10_test_lmdb
./build/examples/cifar10/convert_cifar_data.bin data/cifar10 examples/cifar10 lmdb
$TOOLS/compute_image_mean -backend=lmdb examples/cifar10/cifar10_train_lmdb examples/cifar10/mean.binaryproto
$TOOLS/caffe train --solver=examples/cifar10/solver.prototxt $@
$TOOLS/caffe train --solver=examples/cifar10/solver_lr1.prototxt \\
    --snapshot=examples/cifar10/run_iter_4.solverstate.h5 $@
$TOOLS/caffe train --solver=examples/cifar10/solver_lr2.prototxt \\
    --snapshot=examples/cifar10/run_iter_6.solverstate $@
"""
SOLVER = """net: "examples/{0}/net.prototxt" test_iter: 2 test_interval: 3 base_lr: {1} momentum: 0.9 lr_policy: "fixed"
display: 2 max_iter: {2} snapshot: 4 snapshot_prefix: "examples/{0}/run" solver_mode: CPU random_seed: 3 {3}
"""
CIFAR_NET = "".join(f"""layer {{ name: "cifar" type: "Data" top: "data" top: "label" include {{ phase: {phase} }}
  transform_param {{ mean_file: "examples/cifar10/mean.binaryproto" }}
  data_param {{ source: "examples/cifar10/cifar10_{phase.lower()}_lmdb" batch_size: 50 backend: LMDB }} }}
""" for phase in ("TRAIN", "TEST")) + """
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 8 stride: 8 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 10
        weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture
def tree(tmp_path):
    make_tree(tmp_path)
    return tmp_path


def test_what_the_mnist_example_runs(tree):
    net = NET.replace("fashion_mnist/train_lmdb", "mnist/mnist_train_lmdb").replace("fashion_mnist/test_lmdb",
                                                                                    "mnist/mnist_test_lmdb")
    (tree / "examples/mnist/net.prototxt").write_text(net)
    (tree / "examples/mnist/solver.prototxt").write_text(SOLVER.format("mnist", 0.01, 6, ""))
    (tree / "run.sh").write_text(MNIST)
    said = shell(tree, "run.sh", "-log_dir=.", "-sigint_effect=snapshot")
    assert "Iteration 4, lr = 0.01" in said and "Iteration 6, Testing net (#0)" in said
    assert re.search(r"\] accuracy = 0\.\d+", said) and "Benchmark" not in said  # the level was above that of its lines
    for name in ("run_iter_4.solverstate", "run_iter_6.caffemodel"):
        assert (tree / "examples/mnist" / name).is_file()
    assert "Iteration 4, lr = 0.01" in (tree / "caffe.INFO").read_text()


@pytest.mark.thorough
def test_what_the_cifar10_example_runs(tree):
    folder = tree / "examples/cifar10"
    (folder / "net.prototxt").write_text(CIFAR_NET)
    for name, rate, end, form in (("solver", 0.001, 4, "HDF5"), ("solver_lr1", 0.0001, 6, "HDF5"),
                                  ("solver_lr2", 0.00001, 8, "BINARYPROTO")):
        text = SOLVER.format("cifar10", rate, end, f"snapshot_format: {form}")
        (folder / f"{name}.prototxt").write_text(text)
    (tree / "run.sh").write_text(CIFAR)
    said = shell(tree, "run.sh")
    for line in ("Iteration 4, lr = 0.0001", "Iteration 6, lr = 1e-05", "Restoring previous solver status from "
                 "examples/cifar10/run_iter_6.solverstate.h5", "Iteration 8, loss = "):
        assert line in said
    mean = caffe_pb2.BlobProto.FromString((folder / "mean.binaryproto").read_bytes())
    assert (mean.channels, mean.height, mean.width) == (3, 32, 32)
    assert (folder / "run_iter_8.caffemodel").is_file() and (folder / "run_iter_4.caffemodel.h5").is_file()


def test_mistakes_end_a_script(tree):
    done = subprocess.run([str(tree / "build/tools/caffe"), "train", "--solver=none.prototxt"], cwd=tree,
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "scaffe: none.prototxt: no such file or directory\n")
    done = subprocess.run([str(tree / "build/tools/convert_imageset"), "-log_dir=none", "a", "b", "c"], cwd=tree,
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "scaffe: -log_dir: there is no folder none\n")


def test_programs_of_others_are_left_alone(tmp_path, capfd):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/caffe").write_text("theirs")
    assert cli.main(["install_tools", str(tmp_path)]) == 1
    assert "tools/caffe: exists and is not ours" in capfd.readouterr().err
    assert (tmp_path / "tools/caffe").read_text() == "theirs" and len(list(tmp_path.rglob("*"))) == 2
    assert cli.main(["install_tools", str(tmp_path / "other")]) == cli.main(["install_tools", str(tmp_path / "other")])


COUNTS = {"60000": "4", "65000": "6", "70000": "8", "4000": "4", "5000": "6"}


@pytest.mark.skipif("CAFFE_TREE" not in os.environ, reason="CAFFE_TREE does not name a tree of Caffe's")
@pytest.mark.parametrize("example", ["mnist", "cifar10"])
def test_the_scripts_of_a_caffe_tree(tmp_path, example):
    folder = tmp_path / "examples" / example
    shutil.copytree(Path(os.environ["CAFFE_TREE"]) / "examples" / example, folder)
    make_tree(tmp_path)
    for path in folder.glob("*solver*.prototxt"):
        text = re.sub(r"(max_iter|snapshot|stepvalue|stepsize): *(\d+)",
                      lambda m: f"{m[1]}: {COUNTS.get(m[2], '4')}", path.read_text())
        text = re.sub(r"(test_iter|test_interval): *\d+", r"\1: 2", text)
        path.write_text(text)
    create, *others = [*folder.glob("create_*.sh"), *sorted(folder.glob("train_*.sh"))]
    for script in (create, *(path for path in others if "docker" not in path.name)):
        script.write_text(shorten(script.read_text(), COUNTS))
        said = shell(tmp_path, str(script.relative_to(tmp_path)))
        assert ("Done." if script == create else "Optimization Done.") in said
