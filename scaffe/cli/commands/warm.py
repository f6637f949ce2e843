"""Compile all kernels once, ahead of the first run.

`make venv` does this.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from scaffe import log
from scaffe.atomic_files import write_whole
from scaffe.cli import main as cli
from scaffe.cli.doctor.job import find_launcher
from scaffe.data.convert.archives import convert_mnist
from scaffe.data.records.idx import write_idx
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.layers.kernels import cpu
from scaffe.layers.kernels.cpu import channels
from scaffe.layers.kernels.cpu.threads import parts
from scaffe.layers.kernels.specs import ConvSpec, LossSpec
from scaffe.training.strategies.base import strategies
from scaffe.training.strategies.choice import CHOICES
from scaffe.training.strategies.server_strategy import ServerStrategy

NET = """
layer {{ name: "d" type: "Data" top: "data" top: "label"
        data_param {{ source: "{folder}/db" batch_size: 4 backend: LMDB }}
        transform_param {{ scale: 0.004 crop_size: 12 mirror: {mirror} {mean} }} }}
layer {{ name: "e" type: "Convolution" bottom: "data" top: "e"
        convolution_param {{ num_output: 64 kernel_size: 1 pad: 2 }} }}
layer {{ name: "w" type: "Convolution" bottom: "e" top: "w" convolution_param {{ num_output: 64 kernel_size: 3 }} }}
layer {{ name: "t" type: "Convolution" bottom: "w" top: "t" convolution_param {{ num_output: 32 kernel_size: 1 }} }}
layer {{ name: "c" type: "Convolution" bottom: "t" top: "c" convolution_param {{ num_output: 4 kernel_size: 3 }} }}
layer {{ name: "b" type: "BatchNorm" bottom: "c" top: "c" }}
layer {{ name: "s" type: "Scale" bottom: "c" top: "c" scale_param {{ bias_term: true }} }}
layer {{ name: "r" type: "ReLU" bottom: "c" top: "c" }}
layer {{ name: "n" type: "LRN" bottom: "c" top: "n" lrn_param {{ local_size: 3 }} }}
layer {{ name: "r4" type: "ReLU" bottom: "n" top: "n" }}
layer {{ name: "p" type: "Pooling" bottom: "n" top: "p" pooling_param {{ pool: AVE kernel_size: 3 stride: 2 pad: 1 }} }}
layer {{ name: "q" type: "Convolution" bottom: "p" top: "q" convolution_param {{ num_output: 4 kernel_size: 1 }} }}
layer {{ name: "b2" type: "BatchNorm" bottom: "q" top: "q" }}
layer {{ name: "s2" type: "Scale" bottom: "q" top: "q" scale_param {{ bias_term: true }} }}
layer {{ name: "a" type: "Eltwise" bottom: "q" bottom: "p" top: "a" }}
layer {{ name: "r3" type: "ReLU" bottom: "a" top: "a" }}
layer {{ name: "i" type: "InnerProduct" bottom: "a" top: "i" inner_product_param {{ num_output: 10
        weight_filler {{ type: "gaussian" std: 0.1 }} }} }}
layer {{ name: "r2" type: "ReLU" bottom: "i" top: "i" relu_param {{ negative_slope: 0.1 }} }}
layer {{ name: "o" type: "Dropout" bottom: "i" top: "i" }}
layer {{ name: "l" type: "SoftmaxWithLoss" bottom: "i" bottom: "label" top: "l" }}
"""
SOLVER = """net: "{folder}/net.prototxt" base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed" max_iter: 2
test_iter: 2 test_interval: 1 random_seed: 1 snapshot_prefix: "{folder}/s" snapshot_after_train: false
regularization_type: "{decay}" """
RUNS = (("true", "mean_value: 3", "L1"), ("false", "", "L2"))
HALF = ("-precision", "bf16")
N_THREADS = (1, 2)
"""One thread runs kernels themselves, several their wrappers, which are kept apart."""
N_RANKS = 2
ON_ONE_NODE, SCATTERED, ROOTED = CHOICES
RANKS_RUNS = ((ON_ONE_NODE,), (SCATTERED,), (SCATTERED, "-reduce", "R", "-wire", "bf16"),
              (ROOTED, "-reduce", "C", "-wire", "fp16"))
"""Strategies and flags of ``train``: sums in shared memory, sums of what messages bring, and both half precisions."""
RANKS_SECONDS = 400
"""After which a job that hangs is given up."""
ON_EACH_RANK = "import sys; from scaffe.cli.commands import warm; sys.exit(warm.on_each_rank(sys.argv[1]))"


def main(argv: list[str]) -> int:
    """Train two tiny nets for a moment, one in bfloat16, too, and on two ranks, where mpirun is. Returns the exit
    code."""
    Flags("warm", __doc__ or "").parse(argv)
    with tempfile.TemporaryDirectory() as folder:
        log.silence(True)
        try:
            with _shared_work():
                code = _train_both(folder)
            _multiply_many_weights()
            _run_first_layers()
            _run_last_layers()
        finally:
            log.silence(False)
        if code:
            return code
        missing = _train_on_ranks(folder)
    print(f"kernels are compiled, but for several ranks: {missing}" if missing else "kernels are compiled")
    return 0


def _train_both(folder: str) -> int:
    _make_data(Path(folder))
    for mirror, mean, decay in RUNS:
        net = NET.format(folder=folder, mirror=mirror, mean=mean)
        write_whole(f"{folder}/net.prototxt", net.encode(), UserError)
        write_whole(f"{folder}/solver.prototxt", SOLVER.format(folder=folder, decay=decay).encode(), UserError)
        code = _train(folder)
        if code:
            return code
    return _train(folder, *HALF) if find_spec("ml_dtypes") else 0


def _train(folder: str, *flags: str) -> int:
    """On one thread and on two. Returns the first wrong exit code."""
    command = ["train", "-solver", f"{folder}/solver.prototxt", *flags]
    codes = (cli.main([*command, "-threads", str(n_threads)]) for n_threads in N_THREADS)
    return next((code for code in codes if code), 0)


@contextmanager
def _shared_work() -> Iterator[None]:
    """Threads share the smallest work, so that what they run is compiled, too; it needs what one thread runs."""
    least = parts.LEAST_ELEMS, channels.CHUNK_ELEMS
    parts.LEAST_ELEMS = channels.CHUNK_ELEMS = 1
    try:
        yield
    finally:
        parts.LEAST_ELEMS, channels.CHUNK_ELEMS = least


def _multiply_many_weights() -> None:
    """The gradient of an inner product with more weights than the nets have."""
    x, gy, gw = (np.zeros(shape, np.float32) for shape in ((1, 1024), (1, 1024), (1024, 1024)))
    cpu.inner_product(1, 1024, 1024).backward_weights(x, gy, gw, None)


def _run_first_layers() -> None:
    """Convolutions of gray and coloured images, and LeNet's second one: on one thread and on two."""
    for n_threads in N_THREADS:
        cpu.set_threads(n_threads)
        for spec in (ConvSpec((2, 3, 8, 8), 32, (5, 5), (1, 1), (0, 0), (1, 1)),
                     ConvSpec((64, 1, 8, 8), 20, (5, 5), (1, 1), (0, 0), (1, 1)),
                     ConvSpec((64, 20, 8, 8), 50, (5, 5), (1, 1), (0, 0), (1, 1))):
            plan = cpu.convolution(spec)
            x, w, b, y = (np.zeros(shape, np.float32) for shape in (
                spec.in_shape, spec.weight_shape, spec.n_output, spec.out_shape))
            plan.forward(x, w, b, y)
            plan.backward_data(y, w, x)
            plan.backward_weights(x, y, w, b)


def _run_last_layers() -> None:
    """Softmax, and its loss, of as many classes as several threads share."""
    x, prob, labels, loss = (np.zeros(shape, np.float32) for shape in ((64, 1024), (64, 1024), 64, 1))
    plan = cpu.softmax_loss(LossSpec(64, 1024, None, None, x.dtype))
    for n_threads in N_THREADS:
        cpu.set_threads(n_threads)
        cpu.softmax_rows(x, prob)
        plan.forward(x, labels, prob, loss)
        plan.backward(prob, labels, loss, x)


def _train_on_ranks(folder: str) -> str:
    """The last of these nets on two ranks. Returns why it could not be, or nothing."""
    mpirun = find_launcher()
    if mpirun is None:
        return "there is no mpirun"
    words = [mpirun, "-np", str(N_RANKS), sys.executable, "-c", ON_EACH_RANK, f"{folder}/solver.prototxt"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=RANKS_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"{mpirun} did not end within {RANKS_SECONDS} s"
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if any(map(str.isalnum, line))]
        return f"{mpirun} failed: {lines[-1] if lines else f'exit code {done.returncode}'}"
    return ""


def on_each_rank(solver: str) -> int:
    """All trainings of several ranks, one after another in the processes of one job. Returns the first wrong exit code.

    Args:
        solver: path of its file.
    """
    served = ((name,) for name in strategies.names() if issubclass(strategies.get(name), ServerStrategy))
    codes = (cli.main(["train", "-solver", solver, "-strategy", *run]) for run in (*RANKS_RUNS, *served))
    return next((code for code in codes if code), 0)


def _make_data(folder: Path) -> None:
    images = np.arange(16 * 16 * 16, dtype=np.uint8).reshape(16, 16, 16)
    write_idx(folder / "images", images)
    write_idx(folder / "labels", np.arange(16, dtype=np.uint8) % 10)
    convert_mnist(str(folder / "images"), str(folder / "labels"), str(folder / "db"), False)
