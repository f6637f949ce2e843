"""sandblaster: L-BFGS, by a coordinator that commands vectors on shards and gives replicas portions of a batch."""

from __future__ import annotations

import time

from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.errors import UserError
from scaffe.log import info
from scaffe.training.sandblaster.interfaces import SandblasterFaultTolerance, SandblasterRoles, SandblasterState
from scaffe.training.sandblaster.messages import Batch, batch_of, feeds_of
from scaffe.training.sandblaster.rank import Rank, RankStatistics, summary
from scaffe.training.sandblaster.replica import InStepAtPhases, Loop
from scaffe.training.strategies.base import InStep, Strategy, strategies
from scaffe.training.strategies.roles import Replica
from scaffe.training.strategies.transfers import ROOT, Buckets


@strategies.register("sandblaster")
class Sandblaster(Strategy):
    """Sandblaster L-BFGS (Dean et al., NIPS 2012, 4.2 and Algorithm 1.2); on one rank a full-batch L-BFGS.

    An iteration is a step: ``iterate`` gives the loss at the parameters, and evaluates it where that is not known yet;
    ``apply`` searches along the quasi-Newton direction. Ranks are in step only after ``synchronize_parameters``: one
    that is late continues when it can, and what it did for a finished pass does not count.
    """

    roles = SandblasterRoles()
    fault_tolerance_type = SandblasterFaultTolerance
    fault_tolerance: SandblasterFaultTolerance
    state: SandblasterState

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica, SandblasterState(replica), InStep(Communicator.single()))
        self._refuse()
        self._feeds = feeds_of(replica.net)
        self._buckets = Buckets(replica, ())
        self._phase, self._loss, self.has_converged = 0, float("nan"), False
        self._batch = Batch(0, 0, 1)
        self.acts_between_layers, self.hook_points = False, ()

    def _refuse(self) -> None:
        replica = self.replica
        if replica.net.context.kernels.PLACE != "host":
            raise UserError("LBFGS keeps its vectors in host memory and trains on CPUs", everywhere=True)
        if replica.updater.param.snapshot_diff:
            raise UserError("LBFGS has no steps to save: the solver's snapshot_diff must be false", everywhere=True)
        if not any(p.lr_mult for p in replica.net.params.params):
            raise UserError(f"LBFGS: net {replica.net.name!r} has no parameter to train", everywhere=True)

    @property
    def images_per_pass(self) -> int:
        """See Strategy: the batch; a step makes a pass or more over it."""
        return batch_of(self._feeds, self.replica.updater.param.lbfgs_param, 0).n_images

    def begin(self) -> None:
        replica, world = self.replica, self.replica.world
        params, layout = replica.net.params, self.state.layout
        if self.state.n_servers:
            world.bcast_object(layout, ROOT)
        self._rank = Rank(world, layout)
        own = self._rank.compute(params.data, params.diff, self._buckets.runs)
        if replica.communicator.rank == ROOT:
            self._rank.coordinate(replica.updater.param, replica.communicator.n_ranks)
        self._rank.start()
        self._loop = Loop(self._rank.service, own, layout.n_shards, replica.timers, self._compute)
        self.in_step = self._wishes = InStepAtPhases(self._loop)
        self._started = time.perf_counter()
        if layout.tolerates_rank_loss:
            self.fault_tolerance.begin()
        self.state.begin(self._rank, self._loop)
        self.synchronize_parameters()

    def iterate(self, rate: float, iteration: int) -> float:
        batch = batch_of(self._feeds, self.replica.updater.param.lbfgs_param, iteration)
        if batch != self._batch:
            self._batch = batch
            self._run("renew", rate)
        return self._loss

    def apply(self, rate: float, iteration: int) -> None:
        if not self.has_converged:
            self._run("step", rate)
            if self.has_converged:
                info(f"Iteration {iteration}: L-BFGS has converged, no step makes the objective fall")

    def synchronize_parameters(self) -> None:
        self.fault_tolerance.n_synchronized += 1
        self._run("synchronize", 0.0)
        for place in self._buckets.frozen:
            self.replica.communicator.bcast(self.replica.net.params.data[place], ROOT)

    def finish(self) -> None:
        replica, timers = self.replica, self.replica.timers
        aside = sum(timers.seconds.get(name, 0.0) for name in ("test", "snapshot"))
        post = self._rank.service.post
        mine = RankStatistics(timers.seconds.get("communication", 0.0), time.perf_counter() - self._started - aside,
                              post.n_bytes, post.n_messages)
        try:
            everyone = replica.communicator.allgather_objects(mine)
        except RankLost:
            everyone = [mine]
        coordinator = self._rank.coordinator
        for line in summary(coordinator.optimiser, coordinator.portions, everyone,
                            coordinator.seconds) if coordinator is not None else ():
            info(line)
        self._rank.finish()

    def _run(self, kind: str, rate: float) -> None:
        """Take part in a phase, until the coordinator says that it is over."""
        self._phase += 1
        is_root = self.replica.communicator.rank == ROOT
        over = self._loop.run(self._phase, (kind, self._batch, rate) if is_root else None)
        self._wishes.hear(over.wish)
        if kind != "synchronize":
            self._loss, self.has_converged = over.loss, over.has_converged
        self.fault_tolerance.hear(over.lost)

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
