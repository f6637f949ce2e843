"""The wheel and the sdist: one top-level name, and a trainer away from the checkout beside a user's own modules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import h5py
import numba
import numpy as np
import pytest
import trove_classifiers

from scaffe import __version__

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/fashion_mnist"
BUILD_SDIST = "import setuptools.build_meta as backend, sys; print(backend.build_sdist(sys.argv[1]))"
PACKAGES = Path(np.__file__).parents[1]  # where this environment has what scaffe depends on

LAYERS = """
import caffe
from {theirs[0]} import seen
from {theirs[1]} import FACTOR

class Scaled(caffe.Layer):
    def setup(self, bottom, top):
        seen()

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = FACTOR * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = FACTOR * top[0].diff
"""
NET = """
layer { name: "rows" type: "HDF5Data" top: "x" top: "y" hdf5_data_param { source: "rows.txt" batch_size: 4 } }
layer { name: "scaled" type: "Python" bottom: "x" top: "s" python_param { module: "layers" layer: "Scaled" } }
layer { name: "ip" type: "InnerProduct" bottom: "s" top: "p" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "p" bottom: "y" top: "loss" }
"""


def run(*command: object, cwd: Path, **environment: str) -> str:
    """What a command says on both streams, with nothing of the checkout or of this process on Python's path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SCAFFE_"))}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=clean | environment, capture_output=True, text=True,
                          timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def wheel_of(source: Path, target: Path) -> Path:
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", target, source,
        cwd=target)
    wheel, = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The files that git has, or would take, copied: building leaves files behind."""
    folder = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            text=True, capture_output=True, check=True).stdout.split("\0")
    for name in filter(None, listed):
        if os.path.lexists(ROOT / name) and not name.startswith("tests/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    return wheel_of(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The programs' folder of an environment that has the wheel alone; what it depends on comes from this one."""
    folder = tmp_path_factory.mktemp("installed") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    run(sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--no-deps", "--no-index", wheel,
        cwd=folder.parent)
    packages, = folder.glob("lib/python*/site-packages")
    assert sorted(path.name for path in packages.iterdir()) == ["scaffe", f"scaffe-{__version__}.dist-info"]
    (packages / "others.pth").write_text(f"{PACKAGES}\n")  # a line of it names a folder; that folder's own .pth files,
    return folder / "bin"  # which lead to the checkout, are not read


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def test_the_wheel_has_all_that_the_folders_have_under_one_name(source, wheel):
    names = set(members(wheel))
    assert {name.split("/")[0] for name in names} == {"scaffe", f"scaffe-{__version__}.dist-info"}
    wanted = {".py", ".json", ".pb", ".proto", ".cu", ".cuh"}
    for folder, below in (("scaffe", ""), ("collectives", "scaffe/"), ("layers", "scaffe/"), ("data", "scaffe/")):
        files = [below + str(path.relative_to(source)) for path in (source / folder).rglob("*")
                 if path.suffix in wanted and not any(part.is_symlink() for part in (path, *path.parents))]
        assert len(files) > 20
        assert set(files) <= names


@pytest.mark.thorough
def test_the_sdist_builds_the_same_wheel(source, wheel, tmp_path):
    run(sys.executable, "-c", BUILD_SDIST, tmp_path, cwd=source)
    with tarfile.open(tmp_path / f"scaffe-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # Python 3.11.4
    (tmp_path / "wheel").mkdir()
    again, first = members(wheel_of(tmp_path / f"scaffe-{__version__}", tmp_path / "wheel")), members(wheel)
    assert sorted(again) == sorted(first)
    assert [name for name in first if again[name] != first[name]] == []


def test_what_package_indexes_and_installers_look_for(source, wheel, tmp_path):
    """The README renders, nothing lies outside scaffe/, classifiers are known ones."""
    run(sys.executable, "-c", BUILD_SDIST, tmp_path, cwd=source)
    sdist, = tmp_path.glob("*.tar.gz")
    assert run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist, cwd=tmp_path).count("PASSED") == 2
    run(sys.executable, "-m", "check_wheel_contents", "--toplevel", "scaffe", wheel, cwd=tmp_path)
    said = members(wheel)[f"scaffe-{__version__}.dist-info/METADATA"].decode().split("\n\n")[0]
    python = re.findall(r"Classifier: Programming Language :: Python :: 3\.(\d+)", said)
    assert f"Requires-Python: >=3.{python[0]}\n" in said
    assert set(re.findall(r"Classifier: (.*)", said)) <= trove_classifiers.classifiers


def test_version_says_what_it_runs_on(installed, tmp_path):
    said = run(installed / "scaffe", "--version", cwd=tmp_path).splitlines()
    assert said[0] == f"scaffe {__version__}"
    assert said[1].startswith(f"Python {sys.version.split()[0]}, numpy {np.__version__}, numba {numba.__version__}, ")
    assert said[2].startswith(("oneDNN: 3.", "no libdnnl"))
    assert said[3].startswith("MPI: ")


def test_it_trains_beside_a_users_own_modules_of_the_folders_names(installed, tmp_path):
    (tmp_path / "layers.py").write_text(LAYERS.format(theirs=("collectives", "data")))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/__init__.py").write_text("FACTOR = 3\n")
    (tmp_path / "collectives.py").write_text("def seen():\n    open('seen', 'w').close()\n")
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" '
                                              'max_iter: 3 display: 1')
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"], file["y"] = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    (tmp_path / "rows.txt").write_text("rows.h5\n")
    said = run(installed / "scaffe", "train", "-solver", "solver.prototxt", cwd=tmp_path, PYTHONPATH=".")
    losses = [float(value) for value in re.findall(r"Iteration \d+ \(.*, loss = (\S+)", said)]
    assert losses[0] == pytest.approx(1)  # half of two squares: weights start at zero
    assert losses == sorted(losses, reverse=True)
    assert (tmp_path / "seen").exists()


@pytest.mark.thorough
def test_it_trains_the_example(installed, tmp_path):
    left_out = shutil.ignore_patterns("*_lmdb", "*.caffemodel", "*.solverstate")
    shutil.copytree(ROOT / EXAMPLE, tmp_path / EXAMPLE, ignore=left_out)
    for part in ("train", "test"):
        run(installed / "scaffe", "convert_mnist", EXAMPLE, part, f"{EXAMPLE}/{part}_lmdb", cwd=tmp_path)
    solver = tmp_path / EXAMPLE / "lenet_solver.prototxt"
    solver.write_text(solver.read_text().replace("max_iter: 600", "max_iter: 100"))
    said = run(installed / "scaffe", "train", "-solver", solver.relative_to(tmp_path), cwd=tmp_path)
    assert "Optimization Done." in said
    accuracy = float(re.findall(r"Test net output #0: accuracy = (\S+)", said)[-1])
    assert accuracy > 0.5  # of ten classes
