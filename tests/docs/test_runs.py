"""The README's commands and the pages' Python snippets, run as they stand but for a few large settings."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scaffe.files import StoredLayer, write_model
from scaffe.proto import caffe_pb2
from tests.docs.pages import PAGES, ROOT, blocks_with_language
from tests.mpirun import MPIRUN
from tests.scaffe.runs import EXAMPLE

SMALL = (("67108864", "4096"), ("scaffe tune", "scaffe tune -m 64 -x 1 -i 2 -c reduce"), ("61_000_000", "61_000"),
         ("60_000_000", "60_000"), ("simulate -out", "simulate -ranks 8 -ranks_per_node 4 -max_bytes 4096 -out"),
         ("-iterations 100", "-iterations 3"), ("time -model net.prototxt", "time -model net.prototxt -iterations 2"),
         ("-warm_start 100", "-warm_start 2"),
         ("-np 4", "-np 2"), ("-np 32", "-np 2"), ("-m 4:4096", "-m 64:4096 -x 1 -i 2 -s 8"))
"""What a page says, and what is run in its place."""
DEPLOY = """input: "data" input_shape { dim: 10 dim: 3 dim: 227 dim: 227 }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
NOT_HERE = ('memory="device"', "...", "…", "my_", "torch", "caffenet")
"""What a snippet that cannot run here has in it: a GPU, parts left out, a reader's own data, PyTorch (tests/torch)."""


def shell_blocks():
    """The README's and the tutorial's shell blocks, but for making environments and running all tests."""
    for page, marks in ((ROOT / "README.md", ()), (ROOT / "docs/tutorial.md", pytest.mark.thorough)):
        for language, block in blocks_with_language(page):
            text = "\n".join(line.text for line in block)
            if language == "sh" and not re.search(r"^make |pip install", text, re.M):
                yield pytest.param(text, id=f"{page.name}:{block[0].number}", marks=marks)


def snippets():
    """The Python snippets of all pages that can run here."""
    for page in PAGES:
        for language, block in blocks_with_language(page):
            text = "\n".join(line.text for line in block)
            if language == "python" and not any(part in text for part in NOT_HERE):
                yield pytest.param(text, id=f"{page.name}:{block[0].number}")


def small(text):
    for long, short in SMALL:
        text = text.replace(long, short)
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the pages name, and the example beside."""
    folder = tmp_path_factory.mktemp("reader")
    example = folder / "examples/fashion_mnist"
    shutil.copytree(EXAMPLE, example, ignore=shutil.ignore_patterns("*_lmdb", "*.caffemodel", "*.solverstate"))
    for solver in (example / "lenet_adagrad_solver.prototxt", example / "lenet_solver.prototxt"):
        text = re.sub(r"max_iter: \d+", "max_iter: 6", solver.read_text())
        text = re.sub(r"test_iter: \d+", "test_iter: 2", text)
        solver.write_text(text)
    shutil.copy(ROOT / "mpi.env", folder)
    (folder / "hosts").write_text("localhost slots=32\n")
    (folder / "one.log").write_text("I1122 10:00:00.000000 7 solver.py:60] Solving LeNet\n")  # of an earlier step
    (folder / ".venv/bin").mkdir(parents=True)
    paths = dict.fromkeys([str(Path(sys.executable).parent), str(Path(MPIRUN).parent)])
    (folder / ".venv/bin/activate").write_text(f'PATH="{":".join(paths)}:$PATH"\n')
    (folder / "solver.prototxt").write_text(re.sub(r"snapshot_prefix: .*", 'snapshot_prefix: "run"', text))
    shutil.copy(example / "lenet_train_test.prototxt", folder / "net.prototxt")
    (folder / "deploy.prototxt").write_text(DEPLOY)
    ip = caffe_pb2.LayerParameter(name="ip", type="InnerProduct")
    rng = np.random.default_rng(0)
    weights = StoredLayer(ip, [rng.random((10, 3), np.float32), np.zeros(10, np.float32)])
    write_model(folder / "net.caffemodel", "net", [weights])
    shell(folder, "\n".join(f"python -m scaffe convert_mnist {example} {part} {example}/{part}_lmdb"
                            for part in ("train", "test")))
    shell(folder, "python -m scaffe train -solver solver.prototxt")
    for name in ("pretrained.caffemodel", "run_iter_500.caffemodel"):
        shutil.copy(folder / "run_iter_6.caffemodel", folder / name)
    for database in ("train_lmdb", "test_lmdb"):
        shutil.rmtree(example / database)
    return folder


def shell(folder, text):
    """Run lines of shell that must all succeed."""
    paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", text], cwd=folder, capture_output=True, text=True,
                          timeout=200, env=os.environ | {"PATH": paths})
    assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


@pytest.mark.mpi_job
@pytest.mark.parametrize("text", list(shell_blocks()))
def test_the_pages_commands_run(folder, text):
    if "-solver solver.prototxt" in text:  # whose net reads the example's databases
        shell(folder, "\n".join(f"test -e examples/fashion_mnist/{part}_lmdb || python -m scaffe convert_mnist "
                                f"examples/fashion_mnist {part} examples/fashion_mnist/{part}_lmdb"
                                for part in ("train", "test")))
    shell(folder, small(text))


@pytest.mark.parametrize("text", list(snippets()))
def test_the_snippets_run(folder, text):
    cv2 = pytest.importorskip("cv2")
    cv2.imwrite(str(folder / "cat.jpg"), np.random.default_rng(1).integers(0, 256, (300, 400, 3), np.uint8))
    done = subprocess.run([sys.executable, "-c", small(text)], cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{text}\n{done.stderr[-2000:]}"


def test_there_are_some():
    assert len(list(shell_blocks())) >= 3
    assert len(list(snippets())) >= 4
