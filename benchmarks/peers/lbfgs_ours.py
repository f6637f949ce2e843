"""Our LeNet for ``benchmarks/sandblaster.py``: ``lbfgs_ours.py FOLDER N_STEPS N_THREADS DATA``.

Writes its first weights to FOLDER/weights.npz and the images to FOLDER/images.npz if they are not there, so that the
peer begins from the same; else begins from those weights. Prints a line of JSON: the loss after the steps, passes, and
seconds a pass from the second step on.
"""

import json
import sys
import time
from argparse import Namespace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

import numpy as np  # noqa: E402
from google.protobuf import text_format  # noqa: E402
from sandblaster_parts.training import example  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.training.assembly import build_solver  # noqa: E402


class Clock:
    """Takes the time of every step."""

    def __init__(self):
        self.times, self.passes = [], []

    def __getattr__(self, name):
        return lambda *_: None

    def after_iteration(self, solver):
        """See Observer."""
        self.times.append(time.perf_counter())
        self.passes.append(solver.strategy._rank.coordinator.optimiser.progress.n_evaluations)


def main():
    folder, n_steps, n_threads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    log.silence(True)
    param = text_format.Parse(
        f'net: "{folder}/net.prototxt" type: "LBFGS" base_lr: 1 lr_policy: "fixed" max_iter: {n_steps} random_seed: 5 '
        f'display: 0 snapshot_after_train: false snapshot_prefix: "{folder}/run"', caffe_pb2.SolverParameter())
    options = Namespace(strategy="auto", reduce="auto", wire="", scal="strong", threads=n_threads, readers=1, level=0,
                        stage="", gpu="", allow_nan=False, skip_bad_records=0, servers=0, deterministic=False)
    solver = build_solver(Communicator.single(), param, options)
    weights = folder / "weights.npz"
    blobs = [p.blob for p in solver.net.params.params]
    if weights.exists():
        for blob, array in zip(blobs, np.load(weights).values(), strict=True):
            blob.data = array
    else:
        np.savez(weights, *[np.array(blob.data) for blob in blobs])
        images, labels = example(Path(sys.argv[4]))
        np.savez(folder / "images.npz", images=images.astype(np.float32).reshape(-1, 1, 28, 28), labels=labels)
    clock = Clock()
    solver.observers.append(clock)
    solver.solve()
    optimiser = solver.strategy._rank.coordinator.optimiser
    seconds = (clock.times[-1] - clock.times[0]) / (clock.passes[-1] - clock.passes[0])
    print(json.dumps({"loss": optimiser.loss, "steps": solver.iteration, "evaluations": clock.passes[-1],
                      "seconds_per_pass": seconds}))


if __name__ == "__main__":
    main()
