"""``-partitions``, the planner's options, the plan that they ask for, and that plan as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scaffe.collectives.model.machine import EMULATED_1_GBIT
from scaffe.errors import UserError
from scaffe.flags import MOST_RANKS, Flags, number
from scaffe.flags.flag import Range
from scaffe.training.partition.planner.cost_model import Ranks
from scaffe.training.partition.planner.search import Plan, best_plan
from scaffe.training.partition.planner.shapes import LayerShape
from scaffe.training.partition.planner.timeline import iteration_seconds

AUTO, MEASURED = "auto", "measured"
LINK = EMULATED_1_GBIT.inter_bandwidth
RATE = 5e10  # of a core with AVX-512
MOST_SPEED = 1e18  # a second
PARTITIONS = Range(1, MOST_RANKS, words=((AUTO, 0),), is_kept=True)
MOST_PLANNED = 4096  # ranks, in half a minute


def add_machine_flags(flags: Flags, can_measure: bool = False) -> None:
    """Add what the planner needs to know of the machine.
    ``can_measure``: whether the command's ranks are there to measure it."""
    words = {MEASURED: 0.0} if can_measure else {}
    kind, or_measured = number(1, MOST_SPEED, **words), "; measured: at the start" if can_measure else ""
    flags.flag("link_bandwidth", LINK, f"for -partitions: bytes/s of a node's port{or_measured}", kind=kind)
    flags.flag("multiply_adds", RATE, f"for -partitions: multiply-adds/s of a rank{or_measured}", kind=kind)


def ranks_of(options: Any, n_ranks: int, n_images: float, ranks_per_node: int) -> Ranks:
    """What the planner knows of the ranks, with one partition; the links within nodes are assumed to be host memory.
    ``options``: the command line's; what is to be measured is assumed here."""
    machine = replace(EMULATED_1_GBIT, inter_bandwidth=options.link_bandwidth or LINK)
    return Ranks(n_ranks, 1, n_images, ranks_per_node, machine, options.multiply_adds or RATE)


def plan_of(wanted: str, layers: Sequence[LayerShape], ranks: Ranks) -> Plan:
    """The plan that ``-partitions`` asks for. Raises UserError if the ranks cannot be shared out so, or a layer is
    pinned to what it cannot do.

    Args:
        wanted: "auto" or a number.
    """
    if wanted == AUTO:
        return best_of_all(layers, ranks)
    if ranks.n_ranks % int(wanted):
        raise UserError(f"-partitions {wanted} does not divide {ranks.n_ranks} ranks into replicas of equal size")
    return best_plan(layers, replace(ranks, n_partitions=int(wanted)))


def best_of_all(layers: Sequence[LayerShape], ranks: Ranks) -> Plan:
    """The fastest plan with any number of partitions that divides the ranks and the batch; data parallelism where that
    is fastest.

    Plans are compared as they are found, with nothing hidden behind computing: of those whose messages can hide it is
    the one that sends less.
    Raises UserError if a layer is pinned to what it cannot do, or to a number that does not divide the ranks."""
    counts = [k for k in range(1, ranks.n_ranks + 1) if ranks.n_ranks % k == 0]
    pinned = {layer.pinned_partitions for layer in layers} - {0}
    n_images = round(ranks.n_images * ranks.n_ranks)
    fitting = [k for k in counts if (k in pinned if pinned else n_images % k == 0)]
    if not fitting:
        raise UserError(f"parallel_param wants {min(pinned)} partitions, which do not divide {ranks.n_ranks} ranks")
    plans = [best_plan(layers, replace(ranks, n_partitions=k)) for k in fitting]
    return min(plans, key=lambda plan: plan.total.seconds)


def predicted_seconds(layers: Sequence[LayerShape], plan: Plan, ranks: Ranks) -> float:
    """Seconds of an iteration of a plan on these ranks. Messages travel while layers compute, but not on one node,
    whose cores would have to copy them."""
    if ranks.ranks_per_node >= ranks.n_ranks:
        return plan.total.seconds
    return iteration_seconds(layers, plan, replace(ranks, n_partitions=plan.n_partitions),
                             is_still=ranks.ranks_per_node >= plan.n_partitions)


def plan_lines(layers: Sequence[LayerShape], plan: Plan, data_parallel: Plan, ranks: Ranks) -> list[str]:
    """The table; layers that neither compute products nor send anything are left out. ``data_parallel``: the same ranks
    with every layer replicated."""
    rows = [("layer", "type", "split", "bytes sent", "seconds", "data parallel", "seconds")]
    for layer in layers:
        cost, other = plan.costs[layer.name], data_parallel.costs[layer.name]
        if cost.seconds or other.seconds:
            rows.append((layer.name, layer.type, plan.shardings[layer.name], f"{cost.n_bytes:,.0f}",
                         f"{cost.seconds:.6f}", f"{other.n_bytes:,.0f}", f"{other.seconds:.6f}"))
    mine, others = plan.total, data_parallel.total
    rows.append(("total", "", "", f"{mine.n_bytes:,.0f}", f"{mine.seconds:.6f}", f"{others.n_bytes:,.0f}",
                 f"{others.seconds:.6f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    align = [str.ljust] * 3 + [str.rjust] * 4
    table = ["  ".join(put(cell, width) for put, cell, width in zip(align, row, widths, strict=True)) for row in rows]
    replicas = plan.n_ranks // plan.n_partitions
    hidden = [predicted_seconds(layers, one, ranks) for one in (plan, data_parallel)]
    gain = others.seconds / mine.seconds if mine.seconds else 1.0
    return [f"{plan.n_ranks} ranks: {replicas} replica(s) of {plan.n_partitions} partition(s)", *table,
            f"predicted: {gain:.2f} times the speed of data parallelism, with nothing hidden behind computing",
            f"with what can travel while layers compute: {hidden[0]:.3f} s, data parallelism {hidden[1]:.3f} s"]
