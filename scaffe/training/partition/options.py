"""``-partitions`` and what the planner is told of the machine, for the commands; and the plan that they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scaffe.collectives.model.machine import EMULATED_1_GBIT
from scaffe.errors import UserError
from scaffe.flags import Flags
from scaffe.training.partition.planner.prices import Ranks
from scaffe.training.partition.planner.search import Plan, best_of_all, best_plan
from scaffe.training.partition.planner.shapes import LayerShape

AUTO = "auto"
LINK = EMULATED_1_GBIT.inter_bandwidth
RATE = 5e10  # of a core with AVX-512


def add_machine_flags(flags: Flags) -> None:
    """Add what the planner needs to know of the machine."""
    flags.flag("link_bandwidth", LINK, "bytes/s of a node's port, for the planner", kind=_above_0)
    flags.flag("multiply_adds", RATE, "of a rank a second, for the planner", kind=_above_0)


def partitions(text: str) -> str:
    """A value of ``-partitions``: "auto" or a number from 1 on. Raises ValueError."""
    if text != AUTO and not (text.isdecimal() and int(text)):
        raise ValueError("must be auto or a number above 0")
    return text


def _above_0(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError("must be a number above 0")
    return number


def ranks_of(options: Any, n_ranks: int, n_images: float, ranks_per_node: int) -> Ranks:
    """What the planner knows of the ranks, with one partition; the links within nodes are assumed to be host memory.

    Args:
        options: the command line's.
        n_ranks: all of them.
        n_images: of each.
        ranks_per_node: as many on every node.
    """
    machine = replace(EMULATED_1_GBIT, inter_bandwidth=options.link_bandwidth)
    return Ranks(n_ranks, 1, n_images, ranks_per_node, machine, options.multiply_adds)


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
