"""``-partitions``, the planner's options, and the plan that they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scaffe.collectives.model.machine import EMULATED_1_GBIT
from scaffe.errors import UserError
from scaffe.flags import MOST_RANKS, Flags, number
from scaffe.flags.flag import Range
from scaffe.training.partition.planner.choice import best_of_all
from scaffe.training.partition.planner.cost_model import Ranks
from scaffe.training.partition.planner.search import Plan, best_plan
from scaffe.training.partition.planner.shapes import LayerShape

AUTO, MEASURED = "auto", "measured"
LINK = EMULATED_1_GBIT.inter_bandwidth
RATE = 5e10  # of a core with AVX-512
MOST_SPEED = 1e18  # a second
PARTITIONS = Range(1, MOST_RANKS, words=((AUTO, 0),), is_kept=True)
MOST_PLANNED = 4096  # ranks, in half a minute


def add_machine_flags(flags: Flags, can_measure: bool = False) -> None:
    """Add what the planner needs to know of the machine.

    Args:
        flags: a command's.
        can_measure: whether its ranks are there to measure it.
    """
    words = {MEASURED: 0.0} if can_measure else {}
    kind, or_measured = number(1, MOST_SPEED, **words), "; measured: at the start" if can_measure else ""
    flags.flag("link_bandwidth", LINK, f"bytes/s of a node's port, for the planner{or_measured}", kind=kind)
    flags.flag("multiply_adds", RATE, f"of a rank a second, for the planner{or_measured}", kind=kind)


def ranks_of(options: Any, n_ranks: int, n_images: float, ranks_per_node: int) -> Ranks:
    """What the planner knows of the ranks, with one partition; the links within nodes are assumed to be host memory.

    Args:
        options: the command line's; what is to be measured is assumed here.
        n_ranks: all of them.
        n_images: of each.
        ranks_per_node: as many on every node.
    """
    machine = replace(EMULATED_1_GBIT, inter_bandwidth=options.link_bandwidth or LINK)
    return Ranks(n_ranks, 1, n_images, ranks_per_node, machine, options.multiply_adds or RATE)


def plan_of(wanted: str, layers: Sequence[LayerShape], ranks: Ranks) -> Plan:
    """The plan that ``-partitions`` asks for.

    Args:
        wanted: "auto" or a number.
        layers: of the net.
        ranks: all of them.

    Raises:
        UserError: the ranks cannot be shared out so, or a layer is pinned to what it cannot do.
    """
    if wanted == AUTO:
        return best_of_all(layers, ranks)
    if ranks.n_ranks % int(wanted):
        raise UserError(f"-partitions {wanted} does not divide {ranks.n_ranks} ranks into replicas of equal size")
    return best_plan(layers, replace(ranks, n_partitions=int(wanted)))
