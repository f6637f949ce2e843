"""Builds a solver from its prototxt: the training net and the test nets, each with its share of the data."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from functools import partial
from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.layer_feed import TRAIN, Share
from scaffe.errors import UserError
from scaffe.layers.base.context import ParamMemory
from scaffe.layers.base.random import Stream
from scaffe.layers.python import SHARD
from scaffe.log import info
from scaffe.memory.backing.file_backed import FileBackedMemory, StagedOnHost
from scaffe.memory.options import backed_memory, check_debug_info
from scaffe.memory.problem.activations import pass_diffs, reuse_activations
from scaffe.memory.run.testing_nets import place_own_parameters
from scaffe.nets import graph
from scaffe.nets.decoding import Decoding, on_host
from scaffe.nets.devices import Compute, load_kernels
from scaffe.nets.fusion import fuse_layers, join_backward
from scaffe.nets.inference.passes import Inference
from scaffe.nets.loss_shares import lengths_of, share_losses
from scaffe.nets.net import Net
from scaffe.nets.setup import PHASES, Selection, make_context, make_net, seed_of
from scaffe.nets.weights import initial_weights, load_own_weights
from scaffe.proto.byte_text import path_of
from scaffe.training.bad_records import BadRecords, WatchBadRecords
from scaffe.training.checkpoint import tests_done
from scaffe.training.limited_memory import limit_memory, place_on_device
from scaffe.training.loss_scale import LossScale, needs_scale
from scaffe.training.observers.display import DebugInfo
from scaffe.training.observers.nvtx import Ranges
from scaffe.training.partition.division import Division
from scaffe.training.ranks import can_measure, choose, most_readers, threads_per_rank, together
from scaffe.training.solver import Method, Solver
from scaffe.training.strategies import Role
from scaffe.training.update_rules import update_rules


def build_solver(communicator: Communicator, param: Any, options: Namespace, role: Role | None = None) -> Solver:
    """Build this rank's nets and its solver. Called by all workers. Raises UserError on every rank, when a step failed
    on any of them.

    Args:
        param: the SolverParameter message, upgraded; its ``random_seed`` is set to the seed that rank 0 drew.
        role: what this rank does, as the strategy has placed it; None where all ranks are workers.
    """
    role = role or Role.worker(communicator, options)
    param.random_seed = communicator.bcast_object(seed_of(param.random_seed))
    compute, kernels = _backend(communicator, param, options, role)
    check_debug_info(param, options)
    rng = Stream(param.random_seed + (communicator.rank if role.division is None else 0))  # shared nets draw alike
    in_arena = kernels.REUSES_ACTIVATIONS and not param.debug_info
    rank = communicator.rank if communicator.n_ranks > 1 else -1
    backed: ParamMemory | None = together(communicator, lambda: backed_memory(options, kernels, rank))
    if in_arena and role.division is None:
        backed = StagedOnHost()  # until it is known what the device has room for
    maker = NetMaker(param, options, kernels, rng, role.share, role.division, backed=backed)
    maker.most_readers = most_readers(communicator, kernels)
    net: Net = together(communicator, maker.train_net)
    if role.division is not None:
        role.division.weigh_losses(net)
    share_losses(net, communicator.rank, communicator.allgather_objects(lengths_of(net)))
    tests = together(communicator, lambda: maker.test_nets(net))
    if in_arena:
        fuse_layers(net, backward=True)
        for test in tests:
            reuse_activations(test, backward=False)
    elif not param.debug_info and backed is None:
        pass_diffs(net)
        join_backward(net.nodes)
    method = Method(options.strategy, options.reduce, options.allow_nan, options)
    solver = Solver(param, net, tests, communicator, method, maker.shares, role)
    if in_arena:
        place_on_device(solver, options, kernels)
    elif isinstance(backed, FileBackedMemory):
        limit_memory(solver, options, backed)
        maker.backed = None  # a plan has the rest of the file
    if not kernels.RECORDS and not param.debug_info and role.division is None:
        solver.test_passes.update((id(test), Inference(test)) for test in tests)
    solver.remake_tests = partial(_remake_tests, solver, maker)
    solver.observers.append(Ranges(vars(options).get("nvtx", False)))
    if needs_scale(compute.dtype):
        solver.observers.append(LossScale())
    if param.debug_info:
        solver.observers.append(DebugInfo())
    if maker.bad.n_allowed:
        solver.observers.append(WatchBadRecords(maker.bad))
    return solver


def _backend(communicator: Communicator, param: Any, options: Namespace, role: Role) -> tuple[Compute, Any]:
    """What to compute with, and the kernels that do, with the number of threads asked for; arguments as for
    ``build_solver``."""
    wants_gpu = param.HasField("solver_mode") and param.solver_mode == param.GPU
    compute = Compute.of(options, communicator.node_rank, wants_gpu)
    shared = threads_per_rank(communicator, max(options.threads, 0))
    kernels = together(communicator, lambda: load_kernels(shared, compute))
    if can_measure(options, role, kernels):
        trial = NetMaker(param, on_host(options), kernels, Stream(param.random_seed), role.share)
        choose(communicator, kernels, trial.train_net)
    return compute, kernels


def _remake_tests(solver: Solver, maker: NetMaker) -> None:
    """New test nets, whose readers share the data out over the solver's present ranks."""
    del maker.shares[1:]  # the solver's too
    maker.share = Share(solver.communicator.rank, solver.communicator.n_ranks)
    tests = maker.test_nets(solver.net)
    for share in maker.shares[1:]:
        share.first_test = tests_done(solver.param, solver.iteration)
    for old, test in zip(solver.test_nets, tests, strict=True):
        test.share_trained_layers(solver.net)
        if maker.kernels.REUSES_ACTIVATIONS and not solver.param.debug_info:
            reuse_activations(test, backward=False)
            place_own_parameters(test, solver.net)
        if solver.test_passes.pop(id(old), None) is not None:
            solver.test_passes[id(test)] = Inference(test)
        old.close()
    solver.test_nets[:] = tests


def images_per_pass(net: Net) -> int:
    """This rank's batch size: the first axis of the first top of a layer without bottoms; 0 if there is no such top."""
    tops = [top for node in net.nodes if node.is_source for top in node.tops]
    return tops[0].shape[0] if tops and tops[0].shape else 0


def images_per_iteration(solver: Solver, n_replicas: int) -> int:
    """How many images all replicas together pass in an iteration, also where they are shared out unevenly."""
    share = solver.shares[0] if solver.shares else Share()
    each = images_per_pass(solver.net) * n_replicas
    passed = share.global_batch(TRAIN, share.batch) if share.is_uneven else each
    return solver.strategy.images_per_pass or passed * solver.param.iter_size


class NetMaker:
    """Makes the nets of one solver on one rank.

    Args:
        division: how ranks share nets; None: this rank makes whole ones.
        backed: where parameters are made; None: in the backend's memory.

    Attributes:
        shares: which part of the data each net reads, in the order the nets were made.
        most_readers: reader threads that this rank has room for.
    """

    def __init__(self, param: Any, options: Namespace, kernels: Any, rng: Stream, share: Share,
                 division: Division | None = None, fills: bool = True, backed: ParamMemory | None = None) -> None:
        self._division, self._fills, self.backed, self.most_readers = division, fills, backed, 1
        self.param, self.options, self.kernels, self.rng, self.share = param, options, kernels, rng, share
        self.shares: list[Share] = []
        self.bad = BadRecords(vars(options).get("skip_bad_records", 0))
        self._decoding = Decoding.of(options, kernels)

    def train_net(self) -> Net:
        message, source = _only_one(self.param, ("net", "net_param", "train_net", "train_net_param"))
        selection, level = _selection(self.param.train_state, "TRAIN"), self.options.level
        selection = replace(selection, level=selection.level if level is None else level,
                            stages=(*selection.stages, *filter(None, self.options.stage.split(","))))
        return self._make(message, source, selection, replace(self.share, **_portions(self.param)))

    def test_nets(self, trained: Net) -> list[Net]:
        states, division = list(self.param.test_state), self._division
        part = (self.share.rank, self.share.ranks) if division is None else (division.replica, division.n_replicas)
        nets = []
        for number, (message, source) in enumerate(_test_sources(self.param)):
            selection = _selection(states[number] if states else None, "TEST")
            share = Share(*part, n_test_iterations=self.param.test_iter[number])
            nets.append(self._make(message, source, selection, share, trained))
            weights = initial_weights(vars(self.options).get("weights", ""), self.param)  # or what it has started from
            for path in weights if nets[-1].own_blobs else ():
                info(f"Finetuning from {path}")
                load_own_weights(nets[-1], path)
        return nets

    def _make(self, message: Any, source: str, selection: Selection, share: Share, trained: Net | None = None) -> Net:
        self.shares.append(share)
        reading = self._decoding.options(self.bad.reader_options(self.options.readers, self.most_readers,
                                                                 vars(self.options).get("scaled_decode", False)))
        context = make_context(self.kernels, self.rng, share, self.param.random_seed, reading,
                               Compute.of(self.options).dtype)
        context.fills = self._fills
        context.param_memory = self.backed
        context.shard = share.rank, share.ranks
        SHARD.take(context.shard)
        shared = None if self._division is None else self._division.shared
        return make_net(message, selection, context, source, trained, shared)


def _portions(param: Any) -> dict[str, Any]:
    """What a share of the data must know if the solver's type makes passes over batches in portions."""
    kind = update_rules.get(param.type or "SGD") if (param.type or "SGD") in update_rules.names() else None
    portion = kind(param).portion() if kind is not None else None  # an unknown type is refused by the updater
    return {} if portion is None else {"portion": portion, "cache_bytes": param.lbfgs_param.cache_mb << 20}


def _test_sources(param: Any) -> list[tuple[Any, str]]:
    """The test nets' messages, each with its name for error messages. Order as in Caffe: messages given in the solver,
    then files, then the net that training and testing have in common."""
    n_named, n_tests = len(param.test_net_param) + len(param.test_net), len(param.test_iter)
    is_common = bool(param.net) or param.HasField("net_param")
    if n_tests < n_named or (n_tests > n_named and not is_common):
        raise UserError(f"the solver has {n_tests} test_iter for {n_named} test nets; it must have one for each")
    if len(param.test_state) not in (0, n_tests):
        raise UserError(f"the solver has {len(param.test_state)} test_state for {n_tests} test nets; it must have "
                        "none, or one for each")
    if n_tests and param.test_interval <= 0:
        raise UserError(f"the solver has test nets, and test_interval is {param.test_interval}, not above 0")
    sources = [(m, "test_net_param") for m in param.test_net_param]
    sources += [_read_net(name) for name in param.test_net]
    if n_tests > n_named:
        sources += [_read_net(param.net) if param.net else (param.net_param, "net_param")] * (n_tests - n_named)
    return sources


def _selection(state: Any, phase: str) -> Selection:
    if state is None:
        return Selection(PHASES[phase], None)
    return Selection(PHASES[phase], state.level if state.HasField("level") else None, tuple(state.stage))


def _only_one(param: Any, fields: tuple[str, ...]) -> tuple[Any, str]:
    given = [f for f in fields if param.HasField(f)]
    if len(given) != 1:
        raise UserError(f"the solver must give one of {', '.join(fields)}; it gives {', '.join(given) or 'none'}")
    value = getattr(param, given[0])
    return _read_net(value) if isinstance(value, str) else (value, given[0])


def _read_net(name: str) -> tuple[Any, str]:
    path = path_of(name)
    return graph.read_net(path), path
