"""Bytes of a pass for ``benchmarks/sandblaster.py``: ``lbfgs_bytes.py FOLDER``, a rank an emulated node.

Counts what each rank sends to others. Prints a line of JSON for L-BFGS, a pass over the images, with what of it were
parameters and gradients; Downpour's over as many images follows from its 2 (N - 1) / N parameters a step and link.
"""

import json
import sys
import time
from argparse import Namespace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from google.protobuf import text_format  # noqa: E402

from scaffe import log  # noqa: E402
from scaffe.collectives.communicator import Communicator  # noqa: E402
from scaffe.collectives.server.vectors import messages as m  # noqa: E402
from scaffe.proto import caffe_pb2  # noqa: E402
from scaffe.training.assembly import build_solver  # noqa: E402

N_STEPS, N_IMAGES, BATCH = 4, 6000, 64


def main():
    """Train, and print the counts."""
    folder, communicator = Path(sys.argv[1]), Communicator.world()
    log.silence(True)
    param = text_format.Parse(
        f'net: "{folder}/net.prototxt" type: "LBFGS" base_lr: 1 lr_policy: "fixed" max_iter: {N_STEPS} random_seed: 5 '
        f'display: 0 snapshot_after_train: false snapshot_prefix: "{folder}/run"', caffe_pb2.SolverParameter())
    options = Namespace(strategy="auto", reduce="auto", wire="", scal="strong", threads=1, readers=1, level=0, stage="",
                        gpu="", allow_nan=False, skip_bad_records=0, servers=0, deterministic=False)
    solver = build_solver(communicator, param, options)
    counts = {"reads": 0, "bundles": 0}
    observer = Count(counts)
    solver.observers.append(observer)
    solver.solve()
    everyone = communicator.allgather_objects((observer.n_bytes, counts, observer.seconds))
    solver.net.close()
    if communicator.rank == 0:
        report(solver, everyone, communicator.n_ranks)


class Count:
    """Counts bytes and processor time from the first step on, and what this rank asked for and pushed."""

    def __init__(self, counts):
        self._counts, self.n_bytes, self.seconds = counts, 0, 0.0

    def __getattr__(self, name):
        return lambda *_: None

    def before_iteration(self, solver):
        """See Observer: before the first step all that has been sent is subtracted."""
        post = solver.strategy._rank.service.post
        if solver.iteration == 0:
            self.n_bytes, send, counts = -post.n_bytes, post.send, self._counts
            self.seconds = -time.process_time()

            def counting(dest, message, payload=None):
                counts["reads"] += isinstance(message, m.Read)
                counts["bundles"] += isinstance(message, m.Push)
                send(dest, message, payload)

            post.send = counting
            solver.strategy._rank.replica._send = counting

    def after_iteration(self, solver):
        """See Observer."""
        if solver.iteration == N_STEPS:
            self.n_bytes += solver.strategy._rank.service.post.n_bytes
            self.seconds += time.process_time()


def report(solver, everyone, n_ranks):
    """The lines of JSON."""
    coordinator = solver.strategy._rank.coordinator
    n_passes, n_params = coordinator.optimiser.progress.n_evaluations, solver.net.params.diff.nbytes
    sent = sum(n_bytes for n_bytes, _, _ in everyone) / n_ranks / n_passes
    reads = sum(counts["reads"] for _, counts, _ in everyone) / n_ranks / n_ranks / n_passes
    pushes = sum(counts["bundles"] for _, counts, _ in everyone) / n_ranks / n_ranks / n_passes
    least = (n_ranks - 1) / n_ranks * n_params
    own, all_ranks = everyone[0][2], sum(seconds for _, _, seconds in everyone)
    print(json.dumps({"way": "Sandblaster", "unit": "pass", "bytes_per_link": sent, "reads": reads, "pushes": pushes,
                      "of_minimum": sent / least / (1 + pushes), "nodes": n_ranks, "parameters": n_params,
                      "coordinator": {"seconds": coordinator.seconds, "rank": own, "all_ranks": all_ranks},
                      "said": f"; {reads:.2f} reads; coordinator {coordinator.seconds:.3f} s of processor time, "
                              f"{coordinator.seconds / own:.1%} of its rank's and "
                              f"{coordinator.seconds / all_ranks:.2%} of all ranks'"}))
    steps = N_IMAGES / BATCH / n_ranks
    print(json.dumps({"way": "Downpour", "unit": "pass", "bytes_per_link": 2 * least * steps, "pushes": steps,
                      "of_minimum": 2 * steps / (1 + steps), "nodes": n_ranks, "parameters": n_params,
                      "said": f" (computed: fetch and push in each of {steps:.1f} steps of {BATCH} images)"}))


if __name__ == "__main__":
    main()
