"""One rank of Sandblaster: its shard, replica and coordinator, and the run's statistics."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scaffe import forking
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import CommError
from scaffe.collectives.server.vectors import messages as m
from scaffe.collectives.server.vectors.commands import Command
from scaffe.collectives.server.vectors.host import Host
from scaffe.collectives.server.vectors.shard import STEADY_BLOCKS, Blocks, VectorShard
from scaffe.training.early_signals import NUMBERS
from scaffe.training.lbfgs.descent import Lbfgs, Pairs
from scaffe.training.lbfgs.line_search import Rules
from scaffe.training.lbfgs.objective import Objective, Orthantwise, Smooth
from scaffe.training.lbfgs.portions import Portions, StragglerStatistics
from scaffe.training.sandblaster.coordinator import Coordinator
from scaffe.training.sandblaster.replica import COORDINATOR_RANK, Replica
from scaffe.training.sandblaster.service import Service, own_messages


@dataclass(frozen=True)
class RankStatistics:
    """What one rank has waited and sent. ``waiting``: seconds that the replica waited for portions, parameters and
    verdicts."""

    waiting: float
    elapsed: float
    n_bytes: int
    n_messages: int


def summary(optimiser: Lbfgs, portions: Portions, ranks: Sequence[RankStatistics], coordinating: float) -> list[str]:
    """The statistics as lines of the log.

        coordinating: processor time that the coordinator took, in seconds.
    """
    done, pairs, pace = optimiser.progress, optimiser.pairs, portions.pace
    speeds = {name: n / pace.seconds[name] for name, n in pace.n_done.items() if pace.seconds[name] > 0}
    elapsed = max(max(rank.elapsed for rank in ranks), 1e-9)
    lines = [f"L-BFGS: {done.n_steps} steps, {done.n_trials} trials, {done.n_evaluations} passes over a batch; "
             f"{pairs.n_skipped} pairs skipped, history cleared {pairs.n_cleared} times; |gradient| "
             f"{done.slope_norm:.3g}",
             f"Portions: {sum(pace.n_done.values())} computed, {portions.n_again} of them given out again, "
             f"{portions.n_dropped} came too late; {portions.n_fenced} time(s) a replica stood still; "
             f"{sum(rank.waiting for rank in ranks):.1f} s waiting on {len(ranks)} replica(s); "
             f"{sum(rank.n_bytes for rank in ranks) / max(done.n_evaluations, 1):.3g} bytes sent a pass; coordinator "
             f"{coordinating / elapsed:.2%} of a core"]
    if len(speeds) > 1:
        fastest, slowest = max(speeds, key=speeds.__getitem__), min(speeds, key=speeds.__getitem__)
        lines.append(f"Replicas: fastest {fastest} with {speeds[fastest]:.3g} portions a second, slowest {slowest} "
                     f"with {speeds[slowest]:.3g}")
    return lines


@dataclass(frozen=True)
class Layout:
    """How the optimizer's vectors lie on the shards; known to every rank.

    Attributes:
        first_shard, n_shards: ranks that hold shards.
        is_steady: sums do not depend on the number of ranks.
        tolerates_rank_loss: ranks that are neither the first nor hold shards may be lost.
    """

    n_elems: int
    dtype: str
    first_shard: int
    n_shards: int
    is_steady: bool
    tolerates_rank_loss: bool = False

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.n_elems, self.n_shards, STEADY_BLOCKS if self.is_steady else 0)

    @property
    def shards(self) -> range:
        return range(self.first_shard, self.first_shard + self.n_shards)


def objective_of(param: Any) -> Objective:
    """What a SolverParameter message has the net trained for."""
    is_l1 = param.regularization_type == "L1" and param.weight_decay > 0
    return Orthantwise() if is_l1 else Smooth(param.weight_decay > 0)


class Rank:
    """One rank's parts, and the service that carries their messages. All ranks make one, at the same time.

    Attributes:
        host, replica, coordinator: its parts; None for those that it has not.
    """

    def __init__(self, world: Communicator, layout: Layout) -> None:
        self._world, self.layout = world, layout
        self._fault_tolerant = world.fault_tolerant_messages() if layout.tolerates_rank_loss else None
        ranks = own_messages(world) if self._fault_tolerant is None else world
        self.service = Service(ranks, np.dtype(layout.dtype), self._fault_tolerant)
        self.host: Host | None = None
        self.replica: Replica | None = None
        self.coordinator: Coordinator | None = None
        if world.rank in layout.shards:
            blocks = layout.blocks.of(world.rank - layout.first_shard)
            self.host = Host(VectorShard(blocks, np.dtype(layout.dtype)), self.service.post.send)

    def compute(self, data: np.ndarray, diff: np.ndarray, learnt: Sequence[slice]) -> Replica:
        intervals = {rank: self.layout.blocks.interval(rank - self.layout.first_shard) for rank in self.layout.shards}
        self.replica = Replica(data, diff, learnt, intervals, self.service.post.send)
        return self.replica

    def coordinate(self, param: Any, n_replicas: int) -> Coordinator:
        given = param.lbfgs_param
        rules = Rules(given.c1, given.c2, given.max_trials)
        optimiser = Lbfgs(objective_of(param), Pairs(given.history), rules, given.tolerance)
        portions = Portions(1 if self.layout.is_steady else given.bundle, StragglerStatistics())
        self.coordinator = Coordinator(optimiser, portions, n_replicas, self.layout.shards, self.layout.is_steady,
                                       self.service.post.send)
        return self.coordinator

    def start(self) -> None:
        parts = {m.SHARD: self.host, m.REPLICA: self.replica}
        handles: dict[str, Any] = {name: part.handle for name, part in parts.items() if part is not None}
        if self.coordinator is not None:
            coordinator = self.coordinator
            handles[m.COORDINATOR] = lambda source, message, payload: coordinator.handle(source, message)
        self.service.start(handles, self.coordinator.tick if self.coordinator is not None else lambda: None, self._lose)

    @property
    def pairs(self) -> Pairs:
        """On the coordinator's rank: the pairs that it keeps; between two phases."""
        if self.coordinator is None:
            raise RuntimeError("only the first rank has a coordinator")
        return self.coordinator.optimiser.pairs

    def tell(self, commands: Sequence[Command]) -> None:
        for shard in self.layout.shards:
            self.service.run(partial(self.service.post.send, shard, m.Do(tuple(commands))))

    def serve(self) -> None:
        """On a rank without a net: carry messages until the last one has come. Signals are for the workers."""
        for number in NUMBERS:
            forking.set_handler(number, signal.SIG_IGN)
        host = self.host
        self.service.wait_for(lambda: host is None or host.is_closed, "the workers to end", timeout=math.inf)
        self.finish()

    def finish(self) -> None:
        if self.coordinator is not None:
            for shard in self.layout.shards:
                self.service.run(partial(self.service.post.send, shard, m.Close()))
        host = self.host
        if host is not None:
            self.service.wait_for(lambda: host.is_closed, "the coordinator to end")
        if self._fault_tolerant is not None:
            self._fault_tolerant.agree()
        else:
            self._world.barrier()
        self.service.end()

    def _lose(self, rank: int) -> None:
        """Another rank is dead.
        Raises CommError if it was the only rank with the coordinator, or with a shard."""
        if rank == COORDINATOR_RANK or rank in self.layout.shards:
            what = "the coordinator" if rank == COORDINATOR_RANK else "a shard of all vectors"
            raise CommError(f"rank {self._world.rank}: rank {rank} is lost, which had {what}; -resume auto goes on "
                            "from the newest snapshot")
        if self.coordinator is not None:
            self.coordinator.lose(rank)
