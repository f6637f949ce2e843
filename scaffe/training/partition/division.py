"""Division of a job's ranks into replicas that share nets: the plan, a replica's ranks, and those of the same part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scaffe.collectives.communicator import Communicator
from scaffe.layers.base.layer import TRAIN
from scaffe.log import info
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Parts
from scaffe.training.partition.group import Group
from scaffe.training.partition.parts import RankParts
from scaffe.training.partition.planner.rewrite import rewrite
from scaffe.training.partition.planner.search import Plan
from scaffe.training.partition.sharding import CLASSES, REPLICATED


@dataclass(frozen=True)
class Division:
    """How a job's ranks share nets. Ranks of consecutive numbers make a replica.

    Attributes:
        group: the ranks of this replica, for what lies between layers.
        sums: the same ranks, for gradients of what is not split.
        peers: the ranks that have this rank's part of the other replicas.
        batch: images of all ranks, if these share them out unevenly; else 0.
    """

    plan: Plan
    group: Group
    sums: Communicator
    peers: Communicator
    replica: int
    batch: int = 0

    @classmethod
    def of(cls, communicator: Communicator, plan: Plan, batch: int = 0) -> Division:
        """Divide the ranks of a communicator, which all call it, by a plan."""
        replica, part = divmod(communicator.rank, plan.n_partitions)
        group, sums, peers = (communicator.split(*by) for by in ((replica, part), (replica, part), (part, replica)))
        if group is None or sums is None or peers is None:
            raise RuntimeError("a rank without a color")  # each has one
        return cls(plan, Group(group), sums, peers, replica, batch)

    @property
    def n_replicas(self) -> int:
        return self.peers.n_ranks

    def shared(self, message: Any) -> tuple[Any, Parts]:
        """This rank's message of a prepared net, and its parts."""
        is_training = message.state.phase == TRAIN
        made = rewrite(message, self.plan.shardings, is_training)
        parts = RankParts(made, {layer.name: layer for layer in message.layer}, self.group,
                          (self.replica, self.n_replicas), is_training, self.batch)
        parts.own_outputs()
        return made.message, parts

    def weigh_losses(self, net: Net) -> None:
        """Scale the gradients of losses that each rank has of its own images.

        So the ranks' sum is that of the mean over the replica's batch. A loss on split classes is of it already.
        """
        for node in net.nodes:
            if self.plan.shardings.get(node.name) != CLASSES:
                node.loss_scale = 1 / self.group.n_ranks
                node.set_weights()

    def log(self) -> None:
        split = [f"{name} by {kind}" for name, kind in self.plan.shardings.items() if kind != REPLICATED]
        info(f"Model parallelism: {self.n_replicas} replica(s) of {self.plan.n_partitions} partition(s); "
             + (", ".join(split) or "every layer replicated"))
