"""StatePlacement of Sandblaster: the shards own all that is kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.training.fault_tolerance.state_sources import tolerates_rank_loss
from scaffe.training.lbfgs.descent import most_vectors
from scaffe.training.lbfgs.objective import X, first_commands
from scaffe.training.sandblaster.loop import Loop
from scaffe.training.sandblaster.rank import Layout, Rank, objective_of
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.state_placement import StatePlacement
from scaffe.training.strategies.transfers import ROOT


class SandblasterState(StatePlacement):
    """The shards own the parameters and L-BFGS's pairs of vectors; a replica has a copy of the parameters."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica, lambda rank: [])
        self._restored: dict[str, np.ndarray] = {}

    @property
    def n_servers(self) -> int:
        """How many ranks hold shards alone."""
        return int(self.replica.world.n_ranks - self.replica.communicator.n_ranks)

    @property
    def layout(self) -> Layout:
        """How the vectors lie on the shards."""
        replica, n_servers = self.replica, self.n_servers
        params, options = replica.net.params, replica.options
        return Layout(params.n_elems, params.dtype.name, replica.communicator.n_ranks if n_servers else 0,
                      n_servers or replica.world.n_ranks, getattr(options, "deterministic", False),
                      bool(n_servers) and tolerates_rank_loss(options))

    @property
    def kept_bytes(self) -> int:
        """See StatePlacement: sums of portions, those that are sent and those that follow, and a shard's vectors."""
        params = self.replica.net.params
        sums = 2 * params.n_elems * params.dtype.itemsize
        return sums if self.n_servers else sums + self._shard_bytes

    @property
    def server_bytes(self) -> int:
        """See StatePlacement: a shard's vectors."""
        return self._shard_bytes if self.n_servers else 0

    @property
    def _shard_bytes(self) -> int:
        """Of the longest shard's vectors, and of what each replica has sent to it, or is sent by it."""
        replica, layout, param = self.replica, self.layout, self.replica.updater.param
        intervals = [layout.blocks.interval(shard) for shard in range(layout.n_shards)]
        n_arrays = most_vectors(param.lbfgs_param.history, objective_of(param)) + 2 * replica.communicator.n_ranks
        n_elems = max(place.stop - place.start for place in intervals)
        return int(n_arrays * n_elems * replica.net.params.dtype.itemsize)

    def begin(self, rank: Rank, loop: Loop) -> None:
        """Reach the shards by these from now on. The root gives them the parameters, the decay, and restored pairs."""
        self._rank, self._loop = rank, loop
        if self.replica.communicator.rank == ROOT:
            self._fill()

    def _fill(self) -> None:
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

    def histories(self) -> list[np.ndarray]:
        """See StatePlacement: s and y of every pair, the oldest first."""
        if self.replica.communicator.rank != ROOT:
            return []
        n_elems, dtype = self.replica.net.params.n_elems, self.replica.net.params.dtype
        kept: Sequence[str] = [name for pair in self._rank.pairs.kept for name in pair]
        found = [self._loop.collect(name, np.zeros(n_elems, dtype)) for name in kept]
        missing = self.replica.updater.rule.n_histories - len(found)
        return found + [np.zeros(n_elems, dtype)] * missing

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        params = self.replica.net.params
        whole = self._restored.setdefault(f"{'sy'[index % 2]}{index // 2}", np.zeros(params.n_elems, params.dtype))
        whole[start:start + len(values)] = values
