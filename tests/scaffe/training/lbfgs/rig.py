"""Answers the optimiser's requests in one process, with a function in place of a net."""

import numpy as np

from scaffe.collectives.server.vectors import commands as c
from scaffe.collectives.server.vectors.shard import Blocks, VectorShard
from scaffe.training.lbfgs.descent import Lbfgs, Pairs
from scaffe.training.lbfgs.line_search import Rules
from scaffe.training.lbfgs.objective import Orthantwise, Run, Smooth, first_commands

EXACT = Rules(noise=1e-15)


class Rig:
    """An optimiser with float64 vectors on shards.

    Attributes:
        n_rounds: requests to the shards so far.
        points: where the function was evaluated.
    """

    def __init__(self, function, x, n_shards=3, l2=0.0, l1=0.0, history=10, rules=EXACT,
                 tolerance=0.0):
        self.function, self.n_rounds, self.points = function, 0, []
        layout = Blocks(len(x), n_shards)
        self.shards = [VectorShard(layout.of(i), np.dtype(np.float64)) for i in range(n_shards)]
        for shard in self.shards:
            shard.out("x")[:] = x[shard.interval]
        self.optimiser = Lbfgs(Orthantwise() if l1 else Smooth(bool(l2)), Pairs(history), rules,
                               tolerance)
        for command in first_commands(bool(l1 or l2), bool(l1), ((0, len(x), l1 or l2),)):
            self.run(command)
        self.drive(self.optimiser.renew())

    def get(self, name):
        return np.concatenate([shard.vectors[name] for shard in self.shards])

    def run(self, command):
        parts = [part for shard in self.shards for part in shard.run(command)]
        return [c.merged(command, parts)] if isinstance(command, c.REDUCING) else []

    def drive(self, requests):
        answer = None
        while True:
            try:
                request = requests.send(answer)
            except StopIteration:
                return
            if isinstance(request, Run):
                self.n_rounds += 1
                answer = [found for command in request.commands for found in self.run(command)]
            else:
                self.points.append(self.get(request.at))
                answer, gradient = self.function(self.points[-1])
                for shard in self.shards:
                    shard.out(request.into)[:] = gradient[shard.interval]

    def minimise(self, n_steps=100, length=1.0):
        for _ in range(n_steps):
            if not self.optimiser.has_converged:
                self.drive(self.optimiser.step(length))
        return self.get("x")
