"""sandblaster: L-BFGS, by a coordinator that commands vectors on shards and gives replicas portions of a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.data.feeds.layer_feed import Share
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.log import info
from scaffe.training.fault_tolerance.options import STOP
from scaffe.training.lbfgs.descent import most_vectors
from scaffe.training.lbfgs.objective import X, first_commands
from scaffe.training.parameter_server.options import add_servers_flag
from scaffe.training.sandblaster.batch import Batch, batch_of, feeds_of
from scaffe.training.sandblaster.loop import Loop, Survivors
from scaffe.training.sandblaster.rank import Layout, Rank, RankStatistics, objective_of, summary
from scaffe.training.strategies.base import Strategy, strategies
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.role import SERVER, Role
from scaffe.training.strategies.transfers import ROOT, Buckets


@strategies.register("sandblaster")
class Sandblaster(Strategy):
    """Sandblaster L-BFGS (Dean et al., NIPS 2012, 4.2 and Algorithm 1.2); on one rank a full-batch L-BFGS.

    An iteration is a step: ``iterate`` gives the loss at the parameters, and evaluates it where that is not known yet;
    ``apply`` searches along the quasi-Newton direction. Ranks are in step only after ``settle``: one that is late goes
    on when it can, and what it did for a pass that is over does not count.
    """

    solver_type = "LBFGS"
    recovers_in_place = True

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """See Strategy."""
        add_servers_flag(flags)
        flags.flag("deterministic", False, "L-BFGS: same bits on any number of ranks")

    @classmethod
    def place(cls, communicator: Communicator, options: Any) -> Role:
        """See Strategy: the last ``-servers`` ranks hold shards alone."""
        n_servers = getattr(options, "servers", 0)
        if not n_servers and communicator.n_ranks > 1 and tolerates_rank_loss(options):
            raise UserError("-on_rank_loss shrink cannot be had without -servers: each rank holds a shard of L-BFGS's "
                            "vectors, which nobody else has", everywhere=True)
        if not n_servers:
            return Role.worker(communicator, options)
        if n_servers >= communicator.n_ranks:
            raise UserError(f"-servers {n_servers} leaves none of {communicator.n_ranks} rank(s) to train",
                            everywhere=True)
        n_workers = communicator.n_ranks - n_servers
        is_worker = communicator.rank < n_workers
        ranks = communicator.split(0 if is_worker else 1) or communicator
        if is_worker:
            return Role.worker(ranks, options, communicator)
        return Role(SERVER, ranks.rank, n_workers, Share(), ranks, communicator)

    @classmethod
    def serve(cls, role: Role, param: Any, options: Any) -> int:
        """See Strategy."""
        layout = role.world.bcast_object(None, ROOT)
        rank = Rank(role.world, layout)
        rank.start()
        rank.serve()
        return 0

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._refuse()
        self._feeds = feeds_of(replica.net)
        self._buckets = Buckets(replica, ())
        self._restored: dict[str, np.ndarray] = {}
        self._rate, self._phase, self._loss, self.has_converged = 0.0, 0, float("nan"), False
        self._batch = Batch(0, 0, 1)
        self._survivors: Survivors | None = None  # where replicas may be lost
        self._wished = self._wish = 0

    def _refuse(self) -> None:
        replica = self.replica
        if replica.net.context.kernels.PLACE != "host":
            raise UserError("LBFGS keeps its vectors in host memory and trains on CPUs", everywhere=True)
        if replica.updater.param.snapshot_diff:
            raise UserError("LBFGS has no steps to save: the solver's snapshot_diff must be false", everywhere=True)
        if not any(p.lr_mult for p in replica.net.params.params):
            raise UserError(f"LBFGS: net {replica.net.name!r} has no parameter to train", everywhere=True)

    @property
    def acts_between_layers(self) -> bool:
        """See Strategy."""
        return False

    @property
    def hook_points(self) -> Collection[int]:
        """See Strategy: none."""
        return ()

    @property
    def peers(self) -> Communicator:
        """See Strategy."""
        return self._alone

    def owned(self) -> Sequence[slice]:
        """See Strategy: the shards hold all that is kept."""
        return []

    @property
    def images_per_pass(self) -> int:
        """See Strategy: the batch; a step makes a pass or more over it."""
        return batch_of(self._feeds, self.replica.updater.param.lbfgs_param, 0).n_images

    def begin(self) -> None:
        """See Strategy."""
        replica, world = self.replica, self.replica.world
        params, layout = replica.net.params, self._layout
        if self._n_servers:
            world.bcast_object(layout, ROOT)
        self._alone = Communicator.single()
        self._rank = Rank(world, layout)
        own = self._rank.compute(params.data, params.diff, self._buckets.runs)
        is_root = replica.communicator.rank == ROOT
        if is_root:
            self._rank.coordinate(replica.updater.param, replica.communicator.n_ranks)
        self._rank.start()
        self._loop = Loop(self._rank.service, own, layout.n_shards, replica.timers, self._compute)
        self._started = time.perf_counter()
        if layout.tolerates_rank_loss:
            self._survivors = Survivors(replica.communicator, self._go_on_with)
        if is_root:
            self._fill()
        self.settle()

    @property
    def _n_servers(self) -> int:
        return int(self.replica.world.n_ranks - self.replica.communicator.n_ranks)

    @property
    def _layout(self) -> Layout:
        replica, n_servers = self.replica, self._n_servers
        params, options = replica.net.params, replica.options
        return Layout(params.n_elems, params.dtype.name, replica.communicator.n_ranks if n_servers else 0,
                      n_servers or replica.world.n_ranks, getattr(options, "deterministic", False),
                      bool(n_servers) and tolerates_rank_loss(options))

    @property
    def kept_bytes(self) -> int:
        """See Strategy: sums of portions, those that are sent and those that follow, and a shard's vectors."""
        params = self.replica.net.params
        sums = 2 * params.n_elems * params.dtype.itemsize
        return sums if self._n_servers else sums + self._shard_bytes

    @property
    def server_bytes(self) -> int:
        """See Strategy: a shard's vectors."""
        return self._shard_bytes if self._n_servers else 0

    @property
    def _shard_bytes(self) -> int:
        """Of the longest shard's vectors, and of what each replica has sent to it, or is sent by it."""
        replica, layout, param = self.replica, self._layout, self.replica.updater.param
        intervals = [layout.blocks.interval(shard) for shard in range(layout.n_shards)]
        n_arrays = most_vectors(param.lbfgs_param.history, objective_of(param)) + 2 * replica.communicator.n_ranks
        n_elems = max(place.stop - place.start for place in intervals)
        return int(n_arrays * n_elems * replica.net.params.dtype.itemsize)

    def _fill(self) -> None:
        """Give the shards the parameters, the decay and the pairs of a run that goes on."""
        param, updater = self.replica.updater.param, self.replica.updater
        self._loop.load(X, self.replica.net.params.data)
        segments = updater.segments(slice(0, self.replica.net.params.n_elems), 0)
        decay = tuple((s.start, s.stop, param.weight_decay * s.decay_mult) for s in segments)
        has_decay = param.weight_decay > 0
        self._rank.tell(first_commands(has_decay, has_decay and param.regularization_type == "L1", decay))
        pairs = self._rank.pairs
        for index in range(param.lbfgs_param.history):
            s, y = (self._restored.get(f"{kind}{index}") for kind in "sy")
            if s is None or y is None or not s.any():
                continue
            for name, vector in zip(pairs.next, (s, y), strict=True):
                self._loop.load(name, vector)
            pairs.restore()
        self._restored = {}

    def agree(self, level: int, iteration: int) -> int:
        """See Strategy: nobody waits; what a rank wants the coordinator tells all at the end of a later phase."""
        if level > self._wished:
            self._wished = level
            self._loop.wish(level)
        wish, self._wish = self._wish, 0
        if wish:
            self._wished = 0
        return wish

    def iterate(self, rate: float, iteration: int) -> float:
        """See Strategy: the loss at the parameters that this iteration starts from."""
        batch = batch_of(self._feeds, self.replica.updater.param.lbfgs_param, iteration)
        if batch != self._batch:
            self._batch = batch
            self._run("renew", rate)
        return self._loss

    def apply(self, rate: float, iteration: int) -> None:
        """See Strategy: a line search."""
        if not self.has_converged:
            self._run("step", rate)
            if self.has_converged:
                info(f"Iteration {iteration}: L-BFGS has converged, no step makes the objective fall")

    def settle(self) -> None:
        """See Strategy."""
        if self._survivors is not None:
            self._survivors.n_settled += 1
        self._run("settle", 0.0)
        for place in self._buckets.frozen:
            self.replica.communicator.bcast(self.replica.net.params.data[place], ROOT)

    def histories(self) -> list[np.ndarray]:
        """See Strategy: s and y of every pair, the oldest first."""
        if self.replica.communicator.rank != ROOT:
            return []
        n_elems, dtype = self.replica.net.params.n_elems, self.replica.net.params.dtype
        kept = [name for pair in self._rank.pairs.kept for name in pair]
        found = [self._loop.collect(name, np.zeros(n_elems, dtype)) for name in kept]
        missing = self.replica.updater.rule.n_histories - len(found)
        return found + [np.zeros(n_elems, dtype)] * missing

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        """See Strategy."""
        params = self.replica.net.params
        whole = self._restored.setdefault(f"{'sy'[index % 2]}{index // 2}", np.zeros(params.n_elems, params.dtype))
        whole[start:start + len(values)] = values

    def guard(self, call: Callable[[], None]) -> None:
        """See Strategy."""
        if self._survivors is None:
            call()
        else:
            self._survivors.guard(call)

    def finish(self) -> None:
        """See Strategy."""
        replica, timers = self.replica, self.replica.timers
        aside = sum(timers.seconds.get(name, 0.0) for name in ("test", "snapshot"))
        post = self._rank.service.post
        mine = RankStatistics(timers.seconds.get("communication", 0.0), time.perf_counter() - self._started - aside,
                           post.n_bytes, post.n_messages)
        try:
            statistics = replica.communicator.allgather_objects(mine)
        except RankLost:
            statistics = [mine]
        coordinator = self._rank.coordinator
        for line in summary(coordinator.optimiser, coordinator.portions, statistics,
                            coordinator.seconds) if coordinator is not None else ():
            info(line)
        self._rank.finish()

    # --- inside

    def _run(self, kind: str, rate: float) -> None:
        """Take part in a phase, until the coordinator says that it is over."""
        self._phase += 1
        is_root = self.replica.communicator.rank == ROOT
        over = self._loop.run(self._phase, (kind, self._batch, rate) if is_root else None)
        self._wish = max(self._wish, over.wish)
        if kind != "settle":
            self._loss, self.has_converged = over.loss, over.has_converged
        if self._survivors is not None:
            self._survivors.hear(over.lost)

    def _go_on_with(self, left: Communicator) -> None:
        self.replica.communicator = left
        self.on_shrink(left)

    def _compute(self, first: int, n_images: int) -> float:
        """A portion's loss; its gradients are in the net's diffs."""
        net, timers = self.replica.net, self.replica.timers
        for feed in self._feeds:
            feed.choose(first, n_images, (self._batch.first, self._batch.first + self._batch.n_images))
        net.clear_param_diffs()
        with timers.forward(net):
            loss = self.passes.forward()
        with timers("backward"):
            self.passes.backward()
        return float(loss)


def tolerates_rank_loss(options: Any) -> bool:
    """Whether training is to go on when a replica is lost."""
    return getattr(options, "on_rank_loss", STOP) != STOP
