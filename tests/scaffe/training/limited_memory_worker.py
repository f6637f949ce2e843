"""One rank of the test of limited memory on several: the same net under each strategy, without a limit and within one.

    mpirun -np N python -m tests.scaffe.training.limited_memory_worker FOLDER [downpour]
"""

import hashlib
import json
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

from google.protobuf import text_format

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.failure import install_excepthook
from scaffe.collectives.server.workers.transfer_threads import Puller
from scaffe.layers.kernels import extents
from scaffe.memory.plan import layout, search
from scaffe.memory.plan.plan import Choice
from scaffe.memory.problem import layer_groups, tensors
from scaffe.proto import caffe_pb2
from scaffe.training import updater
from scaffe.training.assembly import build_solver
from scaffe.training.checkpoint import restore_checkpoint, save_checkpoint, whole_parameters
from scaffe.training.limited_memory import LimitedMemory
from scaffe.training.observers.test import Test
from scaffe.training.solver import Observer
from scaffe.training.strategies import look_up
from scaffe.training.strategies.roles import SERVER
from tests.scaffe.training.limited_memory_net import NET

RUNS = (("sc-b", "C", 0), ("sc-ob", "C", 500_000), ("sc-ob-naive", "auto", 500), ("sc-obr", "auto", 500),
        ("sc-obr", "C", 500_000), ("sc-rs", "R", 600), ("sc-rs", "auto", 500_000))
SSP, DOWNPOUR = ("ssp", "auto", 500), ("downpour", "auto", 500)
PUSHED = "max_iter: 5 "  # the last iteration pushes: when all settle, nobody has anything left, in whatever order
DEVICE = {"gpu": "", "tf32": "off"}
SERVED = {"slack": 0.0, "servers": 0, "n_sync": 0, "n_fetch": 3, "n_push": 2, "warm_start": 0}
HISTORIES_ALONE = (("sc-obr", "C", 500), ("sc-rs", "R", 600))
SOLVER = 'base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 4 random_seed: 5'


def build(communicator, folder, run, text="", **options):
    """A solver, and the tier that its net has, if it has one; None and None on a rank that is a server alone, which
    serves until the solver ends if it is told to."""
    strategy, algorithm, bucket = run
    updater.MOST_BYTES = 1 << 14 if "memory" in options else 1 << 24  # many pieces, and one
    param = text_format.Parse(f'{SOLVER} snapshot_prefix: "{folder}/x"', caffe_pb2.SolverParameter())
    text_format.Merge(text, param)
    text_format.Parse(NET, param.net_param)
    given = Namespace(
        strategy=strategy, reduce=algorithm, wire="", bucket=str(bucket), scal="strong", threads=1, readers=1, level=0,
        stage="", allow_nan=False, skip_bad_records=0, spill=str(folder), placement="auto",
        **{**SERVED, **DEVICE, "serves": False, **options})
    kind = look_up(strategy, algorithm, communicator)
    role = kind.roles.place(communicator, given)
    if role.kind == SERVER:
        if given.serves:
            kind.roles.serve(role, param, given)
        return None, None
    solver = build_solver(role.ranks, param, given, role)
    return solver, next((each.tier for each in solver.observers if isinstance(each, LimitedMemory)), None)


def least(communicator, folder, run, text="", **options):
    """The least bytes that this rank trains in: ranks hold different parts of the histories."""
    solver, found = build(communicator, folder, run, text, memory="99%", **options)
    if solver is None:
        return "99%"
    solver.close()
    return str(found.least)


class Turns(Observer):
    """Has Downpour's ranks make their iterations one after another, each when the last one's updates have been applied
    and what it has asked for has come, before it pushes anything, so that a run has the same bits each time."""

    def __init__(self, communicator):
        self.ranks = communicator.split(0) or communicator
        self._waits_in_forward = False

    def begin(self, solver):
        solver.net.before_forward.insert(0, self._before_forward)
        solver.net.before_backward.append(partial(self._before_backward, solver))

    def before_iteration(self, solver):
        self._waits_in_forward = 0 < solver.strategy._warm_start == solver.iteration  # all meet when it begins
        if not self._waits_in_forward:
            self._wait()

    def after_iteration(self, solver):
        while not all(batch.is_free() for batch in solver.strategy.tables.batches):
            pass
        self._take_in(solver)
        for _ in range(self.ranks.rank, self.ranks.n_ranks):
            self.ranks.barrier()

    def _before_forward(self, index):
        if self._waits_in_forward:
            self._waits_in_forward = False
            self._wait()

    def _before_backward(self, solver, index):
        if index == len(solver.net.nodes) - 1:
            self._take_in(solver)

    def _take_in(self, solver):
        """Wait until what is asked for may be read: before anybody pushes, and behind this rank's push, since a clock
        asks again. Where a thread gathers it ahead, wait for that, too; else it is as it is when it is read."""
        for batch in solver.strategy.tables.batches if solver.strategy._schedule.is_fetching else ():
            while not batch.is_ready():
                pass
            if isinstance(batch._worker._inbox, Puller):
                batch._worker._inbox.wait_for_rows(batch.number, lambda: None)

    def _wait(self):
        for _ in range(self.ranks.rank):
            self.ranks.barrier()


class Digest(Observer):
    """Of weights and histories, when training has ended and before the strategy does."""

    def finish(self, solver):
        found = hashlib.sha256(whole_parameters(solver).tobytes())
        for history in solver.strategy.state.histories():
            found.update(history.tobytes())
        self.hex = found.hexdigest()


class Seen(Observer):
    """What tests find, likewise."""

    def __init__(self):
        self.values = []

    def measured(self, solver, phase, values):
        self.values.append((phase, values))


class Saved(Observer):
    """A checkpoint, likewise."""

    def finish(self, solver):
        save_checkpoint(solver)


def digest(solver):
    """Train to the end, and close the solver."""
    if solver.method.strategy == "downpour":
        solver.observers.append(Turns(solver.communicator))
    solver.observers.append(Digest())
    solver.solve()
    solver.close()
    return solver.observers[-1].hex


def trained(communicator, folder, run, text="", **options):
    """Train. Returns the digest, and the tier."""
    solver, found = build(communicator, folder, run, text, serves=True, **options)
    return digest(solver) if solver else "", found


def tested(communicator, folder, run, text, **options):
    """The digest, and what each rank's tests find."""
    solver, _ = build(communicator, folder, run, text, **options)
    seen = Seen()
    solver.observers[:0] = [Test(), seen]
    return digest(solver), seen.values


def resumed(communicator, folder, run, **options):
    """The digest of a run that is saved two iterations before its end, and goes on in a new solver."""
    replicates = run[0] == "downpour"
    solver, _ = build(communicator, folder, run, "max_iter: 3" if replicates else "max_iter: 2", **options)
    if replicates:
        solver.observers.append(Turns(solver.communicator))
    solver.observers.append(Saved())
    solver.solve()
    solver.close()
    communicator.barrier()
    solver, _ = build(communicator, folder, run, PUSHED if replicates else "", **options)
    restore_checkpoint(solver, folder / f"x_iter_{solver.param.max_iter - 2}.solverstate")
    return digest(solver)


def moved(found):
    """The kinds of arrays that last, or come from a server, and leave by a tier's plan."""
    chosen = zip(found.iteration.tensors, found.plan.choices, strict=True) if found else ()
    return {part.name.split()[-1] for part, choice in chosen
            if (part.is_persistent or part.name.endswith(" parameters")) and choice is not Choice.KEEP}


def compared(communicator, folder, run, text, kinds, **options):
    """Whether a run at the least memory has the bits of one without a limit, by rank, moves such arrays, and has
    planned with times that its own steps took."""
    expected, _ = trained(communicator, folder, run, text, **options)
    limit = least(communicator, folder, run, text, **options)
    limited, found = trained(communicator, folder, run, text, memory=limit, **options)
    some = {kind for other in communicator.allgather_objects(moved(found)) for kind in other}
    has_moved = found is None or bool(found.mover.offloaded and any(found.iteration.seconds))
    return communicator.allgather_objects(limited == expected and some == kinds and has_moved)


def main():
    tensors.LEAST_BYTES, layer_groups.LEAST_BYTES = 1, 5000
    layer_groups.CHUNK_BYTES = extents.BLOCK_BYTES = 60_000
    search.MOST_DRAWN, layout.MOST_TRIALS = 60, 40  # any plan gives the same bits: a short search will do
    communicator, folder = Communicator.world(), Path(sys.argv[1])
    install_excepthook(communicator)
    log.silence(True)
    if sys.argv[2:]:
        results = [compared(communicator, folder, DOWNPOUR, PUSHED, {"history", "parameters"}),
                   compared(communicator, folder, DOWNPOUR, PUSHED + "iter_size: 2", {"history"})]
    else:
        results = in_step(communicator, folder)
    for run in (DOWNPOUR,) if sys.argv[2:] else (*RUNS[-3:-1], SSP):
        expected = resumed(communicator, folder, run)
        limited = resumed(communicator, folder, run, memory=least(communicator, folder, run))
        results.append(communicator.allgather_objects(expected == limited))
    if communicator.rank == 0:
        (folder / "results.json").write_text(json.dumps(results))


def in_step(communicator, folder):
    """What came out under the strategies whose ranks are in step, and ``ssp`` with slack 0."""
    results = [compared(communicator, folder, run, "", {"history", "parameters"}) for run in RUNS]
    results += [compared(communicator, folder, run, "iter_size: 2", {"history"}) for run in HISTORIES_ALONE]
    return [*results, compared(communicator, folder, SSP, "", {"parameters"})]


if __name__ == "__main__":
    main()
