"""A folder laid out as Caffe's: data archives where its examples' scripts look for them, programs under build/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from scaffe.data.records.idx import read_idx, write_idx
from tests.scaffe.runs import EXAMPLE, ROOT

N_IMAGES = 200


def make_tree(root: Path) -> None:
    """MNIST's four files (of Fashion-MNIST's images), CIFAR-10's six of random images, and the programs."""
    mnist, cifar = root / "data/mnist", root / "data/cifar10"
    for folder in (mnist, cifar, root / "examples/mnist", root / "examples/cifar10"):
        folder.mkdir(parents=True, exist_ok=True)
    for stem in ("train", "t10k"):
        for what, n_axes in (("images-idx3", 3), ("labels-idx1", 1)):
            array = read_idx(EXAMPLE / f"{stem}-{what}-ubyte.gz", n_axes)[:N_IMAGES]
            write_idx(mnist / f"{stem}-{what}-ubyte", array)
    rng = np.random.default_rng(5)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        records = rng.integers(0, 256, (N_IMAGES, 3073), np.uint8)
        records[:, 0] = np.arange(N_IMAGES) % 10
        (cifar / name).write_bytes(records.tobytes())
    done = subprocess.run([sys.executable, "-m", "scaffe", "install_tools", str(root / "build")], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def shell(root: Path, script: str, *args: str, timeout: float = 200) -> str:
    """Run a script from the tree's root, as its readers are told to. Returns what it said."""
    done = subprocess.run(["sh", script, *args], cwd=root, capture_output=True, text=True, timeout=timeout,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, f"{script}: {done.stderr[-2000:]}"
    return done.stdout + done.stderr


def shorten(text: str, counts: dict[str, str]) -> str:
    """A script or solver with other numbers of iterations."""
    return re.sub(r"\d+", lambda number: counts.get(number[0], number[0]), text)
