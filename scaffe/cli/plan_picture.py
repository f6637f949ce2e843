"""Draws a plan of model parallelism: the net, how each layer is partitioned, and its cost."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.pictures.net_boxes import Arrow, Box
from scaffe.pictures.net_picture import Picture, picture_of
from scaffe.training.partition.planner.cost_model import Cost
from scaffe.training.partition.planner.search import Plan
from scaffe.training.partition.planner.shapes import LayerShape
from scaffe.training.partition.sharding import (
    BY_BANDS,
    BY_CHANNELS,
    BY_COLUMNS,
    CLASSES,
    INPUTS,
    ONE_RANK,
    OUTPUTS,
    REPLICATED,
    ROWS,
    sharding_of,
)

COLOURS = {REPLICATED: "#e0e0e0", OUTPUTS: "#ce93d8", INPUTS: "#ff8a80", BY_COLUMNS: "#a5d6a7", CLASSES: "#ffb74d",
           BY_CHANNELS: "#90b4f0", BY_BANDS: "#fff176", ONE_RANK: "#80deea"}


def plan_picture(layers: Sequence[LayerShape], plan: Plan) -> Picture:
    """A box a layer, as the planner had them, coloured by its kind; arrows say how a blob lies, and into what it is
    brought."""
    replicas = plan.n_ranks // plan.n_partitions
    boxes = [Box((f"{plan.n_ranks} ranks: {replicas} replica(s) of {plan.n_partitions} partition(s)",
                  *_cost(plan.total)), "white")]
    arrows: list[Arrow] = []
    makers: dict[str, tuple[int, str]] = {}  # blob → its layer's box, and how it lies
    for layer in layers:
        kind = plan.shardings[layer.name]
        sharding, box = sharding_of(layer.type, kind), len(boxes)
        boxes.append(Box((layer.name, f"{layer.type} {kind}", *_cost(plan.costs[layer.name])), COLOURS[kind]))
        for i, name in enumerate(layer.bottoms):
            maker, lies = makers[name]
            moves = plan.n_partitions > 1 and lies != sharding.need(i)
            arrows.append(Arrow(maker, box, f"{lies} \u2192 {sharding.need(i)}" if moves else ""))
        makers.update(dict.fromkeys(layer.tops, (box, sharding.gives if plan.n_partitions > 1 else ROWS)))
    return picture_of(boxes, arrows, "TB")


def _cost(cost: Cost) -> list[str]:
    """What is sent and taken in an iteration, as lines; none for nothing."""
    sent = [f"{cost.n_bytes / 1e6:,.3f} MB sent"] if cost.n_bytes else []
    return [*sent, f"{cost.seconds * 1e3:,.3f} ms"] if cost.seconds else sent
