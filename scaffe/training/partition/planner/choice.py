"""How many ranks share a replica, and what an iteration of a plan takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scaffe.errors import UserError
from scaffe.training.partition.planner.prices import Ranks
from scaffe.training.partition.planner.search import Plan, best_plan
from scaffe.training.partition.planner.shapes import LayerShape
from scaffe.training.partition.planner.timeline import iteration_seconds


def best_of_all(layers: Sequence[LayerShape], ranks: Ranks) -> Plan:
    """The fastest plan with any number of partitions that divides the ranks and the batch; data parallelism where that
    is fastest.

    Plans are compared as they are found, with nothing hidden behind computing: of those whose messages can hide it is
    the one that sends less.

    Raises:
        UserError: a layer is pinned to what it cannot do, or to a number that does not divide the ranks.
    """
    counts = [k for k in range(1, ranks.n_ranks + 1) if ranks.n_ranks % k == 0]
    pinned = {layer.pinned_partitions for layer in layers} - {0}
    n_images = round(ranks.n_images * ranks.n_ranks)
    fitting = [k for k in counts if (k in pinned if pinned else n_images % k == 0)]
    if not fitting:
        raise UserError(f"parallel_param wants {min(pinned)} partitions, which do not divide {ranks.n_ranks} ranks")
    plans = [best_plan(layers, replace(ranks, n_partitions=k)) for k in fitting]
    return min(plans, key=lambda plan: plan.total.seconds)


def predicted_seconds(layers: Sequence[LayerShape], plan: Plan, ranks: Ranks) -> float:
    """Of an iteration of a plan for these ranks: what can travel does so while layers compute, but not on one node,
    whose cores would have to copy it."""
    if ranks.ranks_per_node >= ranks.n_ranks:
        return plan.total.seconds
    return iteration_seconds(layers, plan, replace(ranks, n_partitions=plan.n_partitions),
                             is_still=ranks.ranks_per_node >= plan.n_partitions)
