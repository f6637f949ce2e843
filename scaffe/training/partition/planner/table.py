"""A plan as lines of text: layer, kind, bytes that a rank sends, predicted seconds, beside pure data parallelism."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.training.partition.planner.choice import predicted_seconds
from scaffe.training.partition.planner.prices import Ranks
from scaffe.training.partition.planner.search import Plan
from scaffe.training.partition.planner.shapes import LayerShape


def plan_lines(layers: Sequence[LayerShape], plan: Plan, data_parallel: Plan, ranks: Ranks) -> list[str]:
    """The table; layers that neither compute products nor send anything are left out.

    Args:
        layers: as the planner had them.
        plan: what it found.
        data_parallel: the same ranks with every layer replicated.
        ranks: all of them.
    """
    rows = [("layer", "type", "split", "bytes sent", "seconds", "data parallel", "seconds")]
    for layer in layers:
        price, other = plan.prices[layer.name], data_parallel.prices[layer.name]
        if price.seconds or other.seconds:
            rows.append((layer.name, layer.type, plan.kinds[layer.name], f"{price.n_bytes:,.0f}",
                         f"{price.seconds:.6f}", f"{other.n_bytes:,.0f}", f"{other.seconds:.6f}"))
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
