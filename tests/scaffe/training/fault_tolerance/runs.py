"""Runs of a small net in which ranks are killed."""

import os
import subprocess
import sys

import numpy as np

from scaffe.files.weights import read_model
from tests.mpirun import mpirun
from tests.scaffe.runs import ROOT
from tests.slurm.runs import write

N_ITERATIONS, DEADLINE_SECONDS = 14, 600
ENVIRONMENT = {"PYTHONPATH": str(ROOT / "tests/slurm"), "PYTHONWARNINGS": "ignore"}


def make(folder, databases, victims):
    """A net without random numbers, in which `victims` (rank:pass,...) are killed."""
    write(folder, databases, display=1, max_iter=N_ITERATIONS, layer="Doomed", param=victims,
          more="clip_gradients: 0.7 weight_decay: 0.001")
    net = folder / "net.prototxt"
    net.write_text("\n".join(line for line in net.read_text().splitlines() if "Dropout" not in line))
    return folder


def train(folder, *flags, n_ranks=1, fault_tolerant=True, options=(), **variables):
    """Runs the solver of a folder to its end."""
    launcher = mpirun(n_ranks) if n_ranks > 1 else []
    if launcher and fault_tolerant:
        launcher[1:1] = ["--with-ft", "ulfm", *options]
    command = [*launcher, sys.executable, "-m", "scaffe", "train", "-solver", "solver.prototxt", "-threads", "1",
               *flags]
    return subprocess.run(command, cwd=folder, env=os.environ | ENVIRONMENT | variables, capture_output=True, text=True,
                          errors="replace", timeout=DEADLINE_SECONDS, check=False)


def weights(folder):
    """All parameters after the last iteration, in one row."""
    layers = read_model(folder / f"run_iter_{N_ITERATIONS}.caffemodel")
    return np.concatenate([np.ravel(blob) for _, _, blobs in layers for blob in blobs])
