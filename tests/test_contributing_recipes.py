"""CONTRIBUTING's recipes, followed literally: each "Add a ..." adds its file in a scratch folder, and nothing else.

A recipe's code begins with its path, as a comment. The scratch folder becomes part of the package that the path names,
as if the file lay among the others.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.mpirun import mpirun

ROOT = Path(__file__).resolve().parent.parent
PRELUDE = """
import importlib, sys
importlib.import_module(sys.argv[1]).__path__.append(sys.argv[2])
import numpy as np
import scaffe as caffe
"""
CHECKS = {"layer": """
from tests.layers.gradient_check import Case, check_exhaustive
for in_place in (False, True):
    check_exhaustive(Case('type: "Cube"', ((2, 3, 2, 2),), in_place=in_place))
open("net.prototxt", "w").write('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 } } } '
                                'layer { name: "c" type: "Cube" bottom: "x" top: "y" }')
net = caffe.Net("net.prototxt", caffe.TEST)
print(net.forward(x=np.array([-1, 0, 2, 3]))["y"].tolist() == [-1, 0, 8, 27])
""", "update rule": """
open("net.prototxt", "w").write('''
layer { name: "x" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 }
  data_filler { type: "gaussian" std: 1 } data_filler { type: "gaussian" std: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "p" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "y" top: "loss" }''')
open("solver.prototxt", "w").write('net: "net.prototxt" type: "SignSGD" base_lr: 0.25 lr_policy: "fixed" '
                                   'random_seed: 3 display: 0 max_iter: 5')
solver = caffe.get_solver("solver.prototxt")
before = [blob.data.copy() for blob in solver.net.params["ip"]]
solver.step(1)
twin = caffe.get_solver("solver.prototxt").net
twin.forward(), twin.backward()
print(all(np.array_equal(old - np.float32(0.25) * np.sign(other.diff), blob.data) for old, other, blob in zip(
    before, twin.params["ip"], solver.net.params["ip"], strict=True)))
""", "strategy": """
import os
from scaffe.cli import main as cli
if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
    open("net.prototxt", "w").write('''
layer { name: "x" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 }
  data_filler { type: "gaussian" std: 1 } data_filler { type: "gaussian" std: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "p" inner_product_param { num_output: 2
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "y" top: "loss" }''')
for name in ("plain", "sc-b") if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0" else ():
    open(f"{name}.prototxt", "w").write('net: "net.prototxt" base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" '
                                        f'random_seed: 3 max_iter: 4 snapshot_prefix: "{name}"')
from scaffe.collectives import Communicator
Communicator.world().barrier()
for name in ("plain", "sc-b"):
    assert cli.main(["train", "-solver", f"{name}.prototxt", "-strategy", name, "-reduce", "C", "-threads", "1"]) == 0
if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
    print(open("plain_iter_4.caffemodel", "rb").read() == open("sc-b_iter_4.caffemodel", "rb").read())
""", "consistency model": """
import os
from scaffe.cli import main as cli
if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
    open("net.prototxt", "w").write('''
layer { name: "x" type: "DummyData" top: "x" top: "y" dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 }
  data_filler { type: "constant" value: 0.5 } data_filler { type: "constant" value: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "p" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "y" top: "loss" }''')
if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
    open("solver.prototxt", "w").write('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 5 '
                                       'snapshot_prefix: "second"')
from scaffe.collectives import Communicator
Communicator.world().barrier()
assert cli.main(["train", "-solver", "solver.prototxt", "-strategy", "second", "-threads", "1"]) == 0
w, b = np.zeros((2, 3)), np.zeros(2)
for step in range(5):
    if step % 2 == 0:
        error = w @ np.full(3, 0.5) + b - 2
    w, b = w - 0.1 * error[:, None] * 0.5, b - 0.1 * error
if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
    net = caffe.Net("net.prototxt", "second_iter_5.caffemodel", caffe.TEST)
    print(all(np.allclose(blob.data, want, rtol=1e-5) for blob, want in zip(net.params["ip"], (w, b), strict=True)))
""", "reduction": """
import os, pytest
from scaffe.collectives import Communicator
os.chdir(sys.argv[3])
code = pytest.main(["-q", "-k", "star", "tests/collectives/planning/test_algorithms.py"])
x = np.ones(5)
Communicator.single().reduce(x, algorithm="star")
print(code == 0)
""", "data source": """
pixels, labels = np.arange(5 * 2 * 3 * 3, dtype=np.uint8).reshape(5, 2, 3, 3), np.array([4, 0, 3, 1, 2])
np.save("pixels.npy", pixels)
np.save("labels.npy", labels)
open("net.prototxt", "w").write('layer { name: "d" type: "Data" top: "x" top: "y" '
                                'data_param { source: "." batch_size: 3 } }')
net = caffe.Net("net.prototxt", caffe.TRAIN)
found = [{k: v.copy() for k, v in net.forward().items()} for _ in range(2)]
order = [0, 1, 2, 3, 4, 0]
print(np.array_equal(np.concatenate([out["x"] for out in found]), pixels[order])
      and np.array_equal(np.concatenate([out["y"] for out in found]).ravel(), labels[order]))
"""}


def recipes() -> dict[str, tuple[Path, str]]:
    """What is added -> the file's path and its code."""
    found = {}
    for section in (ROOT / "CONTRIBUTING.md").read_text().split("\n## Add a")[1:]:
        what = section.splitlines()[0].removeprefix("n ").strip()
        lines = [line for line in section.split("\n## ")[0].splitlines() if line.startswith("    ") or not line]
        path, code = re.fullmatch(r"\s*# (\S+\.py)\n(.*)", textwrap.dedent("\n".join(lines)), re.DOTALL).groups()
        found[what] = Path(path), code
    return found


def test_every_recipe_is_followed():
    assert recipes().keys() == CHECKS.keys()


@pytest.mark.parametrize(("what", "n_ranks"), [
    *((what, 1) for what in CHECKS),
    *(pytest.param(what, 2, marks=pytest.mark.mpi_job) for what in ("strategy", "consistency model"))])
def test_the_recipe(what, n_ranks, tmp_path):
    path, code = recipes()[what]
    added = tmp_path / "added"
    added.mkdir()
    (added / path.name).write_text(code)
    package = ".".join(path.parent.parts if path.parts[0] == "scaffe" else ("scaffe", *path.parent.parts))
    launcher = mpirun(n_ranks) if n_ranks > 1 else []
    done = subprocess.run([*launcher, sys.executable, "-c", PRELUDE + CHECKS[what], package, str(added), str(ROOT)],
                          cwd=tmp_path, capture_output=True, text=True, timeout=150,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "True", done.stdout + done.stderr
