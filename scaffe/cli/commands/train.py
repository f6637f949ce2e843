"""Train a net from a solver prototxt.

On one rank or, under mpirun, on many.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scaffe import threads
from scaffe.atomic_files import refuse_input
from scaffe.cli.job import run_job
from scaffe.collectives import grow
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.fault_tolerance.joining import JoiningRank
from scaffe.errors import UserError
from scaffe.flags import MOST, MOST_THREADS, REQUIRED, Flags, whole
from scaffe.log import info
from scaffe.memory.options import add_memory_flags
from scaffe.nets import graph
from scaffe.nets.decoding import add_decode_flag
from scaffe.nets.devices import add_flags
from scaffe.nets.weights import initial_weights, load_weights
from scaffe.proto.byte_text import path_of, text_of_path
from scaffe.training.assembly import build_solver, images_per_iteration
from scaffe.training.checkpoint import newest_state, restore_checkpoint, saved_seed
from scaffe.training.fault_tolerance.recoverable import RecoverableRank
from scaffe.training.fault_tolerance.recovery import Build, join_training, train_with_recovery
from scaffe.training.fault_tolerance.replacement import REPLACE, STOP, Spawner
from scaffe.training.fault_tolerance.replacement import add_flags as add_loss_flags
from scaffe.training.fault_tolerance.replacement import check as check_loss_flags
from scaffe.training.fault_tolerance.trainer import Trainer
from scaffe.training.observers.display import Display, Progress
from scaffe.training.observers.snapshots import EFFECTS, Signals, Snapshots
from scaffe.training.observers.tensorboard import Tensorboard
from scaffe.training.observers.test import Test
from scaffe.training.observers.timeline import Timeline
from scaffe.training.partition.options import PARTITIONS, add_machine_flags
from scaffe.training.partitioning import divided
from scaffe.training.ranks import AUTO, together
from scaffe.training.solver import Observer, Solver
from scaffe.training.strategies import WORKER, Role, Strategy, look_up
from scaffe.training.strategies.choice import add_flags as add_strategy_flags
from scaffe.training.strategies.choice import check_flags
from scaffe.version import log_notes

EFFECT = ", ".join(EFFECTS)


def main(argv: list[str]) -> int:
    """Run the command; returns the exit code."""
    flags = _flags()
    options = flags.parse(argv)
    check_flags(options)
    refuse_input(options.timeline, [options.solver], UserError)
    if options.snapshot and options.weights:
        flags.error("-snapshot goes on from a state that names its weights; -weights does not go with it")
    return run_job(lambda communicator: _train(communicator, options), options)


def _flags() -> Flags:
    flags = Flags("train", __doc__ or "")
    flags.section("What")
    flags.flag("solver", REQUIRED, "the solver's prototxt", metavar="FILE")
    flags.flag("weights", "", "weights to start from", metavar="FILE,...")
    flags.flag("snapshot", "", "a .solverstate to go on from", metavar="FILE")
    flags.flag("resume", "", "auto: go on from the newest snapshot", choices=("auto",))
    flags.flag("level", 0, "overrides train_state's", kind=whole(-MOST - 1))
    flags.flag("stage", "", "added to train_state's stages", metavar="NAME,...")
    flags.section("Ranks")
    add_strategy_flags(flags)
    add_loss_flags(flags)
    flags.flag("reduce", "auto", "the algorithm that sums gradients")
    flags.flag("partitions", "1", "ranks that share a net; auto: the fastest", kind=PARTITIONS, metavar="K")
    add_machine_flags(flags, can_measure=True)
    flags.flag("scal", "strong", "strong: the batch is shared out", choices=("strong", "weak"))
    add_flags(flags)
    flags.flag("threads", 0, f"{threads.HELP}; auto: fastest", kind=whole(0, MOST_THREADS, auto=AUTO))
    add_memory_flags(flags)
    flags.section("Data")
    flags.flag("readers", AUTO, "reader threads; auto: as needed", kind=whole(1, MOST_THREADS, auto=AUTO))
    add_decode_flag(flags)
    flags.flag("skip_bad_records", 0, "unreadable records to pass over", kind=whole(0))
    flags.flag("scaled_decode", False, "decode larger JPEGs at 1/2, 1/4, 1/8")
    flags.section("Run")
    flags.flag("sigint_effect", "stop", f"what Ctrl-C does: {EFFECT}", choices=EFFECTS, metavar="WHAT")
    flags.flag("sighup_effect", "snapshot", f"what SIGHUP does: {EFFECT}", choices=EFFECTS, metavar="WHAT")
    flags.flag("allow_nan", False, "go on when the loss is not finite")
    flags.flag("timeline", "", "write a trace of what each rank does", metavar="FILE")
    flags.flag("tensorboard", "", "write event files for TensorBoard", metavar="FOLDER")
    flags.pass_over("model", "phase", "iterations")
    return flags


def _train(communicator: Communicator, options: Namespace) -> int:
    param = together(communicator, lambda: _read_solver(options))
    strategy = look_up(options.strategy, options.reduce, communicator, solver_type=param.type or "SGD")
    check_loss_flags(options, strategy, communicator)
    role, roles = strategy.roles.place(communicator, options), strategy.roles
    tolerates_rank_loss = options.on_rank_loss != STOP and not strategy.fault_tolerance_type.recovers_in_place
    if role.kind != WORKER:
        if not tolerates_rank_loss:
            return roles.serve(role, param, options)
        rebuild = _rebuilding(strategy, param, options, _builder(param, options))
        train_with_recovery(roles.server(role, param, options), rebuild, _spawner(role.world.n_ranks, options))
        return 0
    role = divided(role, strategy, param, options)
    with role.ending_all(tolerates_rank_loss):
        _work(strategy, role, param, options, tolerates_rank_loss)
    return 0


def _work(strategy: type[Strategy], role: Role, param: Any, options: Namespace, tolerates_rank_loss: bool) -> None:
    build = _builder(param, options)
    solver = build(role, options)
    together(role.ranks, lambda: _start_from(solver, param, options))
    log_notes(param, role.ranks.n_ranks)
    if tolerates_rank_loss:
        train_with_recovery(Trainer(solver, role), _rebuilding(strategy, param, options, build),
                _spawner(role.world.n_ranks, options))
        return
    try:
        solver.solve()
    finally:
        solver.close()


def join(joining_rank: JoiningRank) -> None:
    """Train as a rank that another one has started."""
    options, n_wanted = joining_rank.task
    options.resume = options.snapshot = ""  # all comes from the other ranks
    param = _read_solver(options)
    communicator = grow.join(joining_rank)
    communicator.install_excepthook()
    strategy = look_up(options.strategy, options.reduce, communicator, solver_type=param.type or "SGD")
    join_training(communicator, strategy.fault_tolerance_type.counts_updates,
                  _rebuilding(strategy, param, options, _builder(param, options)), Spawner(n_wanted, joining_rank.task))


BuildSolver = Callable[[Role, Namespace], Solver]


def _builder(param: Any, options: Namespace) -> BuildSolver:
    snapshots = Snapshots()
    watching: list[Observer] = [snapshots, Display(), Test(),  # at the end: snapshot, last loss, last test, as in Caffe
                                Signals(snapshots, options.sigint_effect, options.sighup_effect)]
    records: list[Observer] = [Tensorboard(options.tensorboard)] if options.tensorboard else []
    records += [Timeline(options.timeline)] if options.timeline else []

    def build(role: Role, options: Namespace) -> Solver:
        solver = build_solver(role.ranks, param, options, role)
        progress = Progress(images_per_iteration(solver, role.n_replicas))
        solver.observers += [*watching, progress, *records]
        return solver

    return build


def _rebuilding(strategy: type[Strategy], param: Any, options: Namespace, build: BuildSolver) -> Build:
    """What a rank becomes among those that are left."""

    def rebuild(ranks: Communicator, kinds: Sequence[str | None]) -> RecoverableRank:
        now = strategy.roles.options_for(options, kinds)
        role = strategy.roles.place(ranks, now)
        if role.kind != WORKER:
            return strategy.roles.server(role, param, now)
        with role.ending_all(tolerates_rank_loss=True):
            return Trainer(build(role, now), role)

    return rebuild


def _spawner(n_ranks: int, options: Namespace) -> Spawner:
    n_wanted = n_ranks if options.on_rank_loss == REPLACE else 0
    return Spawner(n_wanted, (options, n_wanted))


def _read_solver(options: Namespace) -> Any:
    param = graph.read_solver(options.solver)
    if not param.snapshot_prefix:
        param.snapshot_prefix = text_of_path(Path(options.solver).with_suffix(""))
    folder = Path(path_of(param.snapshot_prefix)).parent
    if not folder.is_dir():
        raise UserError(f"{options.solver}: snapshot_prefix {param.snapshot_prefix!r}: there is no folder {folder}")
    if param.random_seed < 0 and (state := _state(param, options)):
        param.random_seed = saved_seed(state)  # so that the data go on in the order that they had
    return param


def _state(param: Any, options: Namespace) -> str | Path | None:
    return options.snapshot or (newest_state(param.snapshot_prefix) if options.resume else None)


def _start_from(solver: Solver, param: Any, options: Namespace) -> None:
    if state := _state(param, options):
        restore_checkpoint(solver, state)
        return
    for path in initial_weights(options.weights, param):
        info(f"Finetuning from {path}")
        load_weights(solver.net, path)
