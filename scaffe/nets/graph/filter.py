"""Selects a net's layers for a NetState by Caffe's include and exclude rules."""

from __future__ import annotations

from typing import Any

from scaffe.errors import UserError


def filter_net(net: Any, state: Any) -> Any:
    """A new NetParameter with only the layers that belong to the state (phase, level, stages), in order.

    A layer with ``include`` rules belongs if the state meets one of them; a layer with ``exclude`` rules, if it meets
    none of them; a layer without rules always.

    Raises:
        UserError: a layer has rules of both kinds.
    """
    kept = type(net)()
    kept.CopyFrom(net)
    del kept.layer[:]
    kept.layer.extend(layer for layer in net.layer if _belongs(layer, state))
    return kept


def _belongs(layer: Any, state: Any) -> bool:
    if layer.include and layer.exclude:
        raise UserError(f"layer {layer.name!r}: give include rules or exclude rules, not both")
    if layer.include:
        return any(meets(state, rule) for rule in layer.include)
    return not any(meets(state, rule) for rule in layer.exclude)


def meets(state: Any, rule: Any) -> bool:
    """Whether a NetState meets every condition of a NetStateRule."""
    stages = set(state.stage)
    return not ((rule.HasField("phase") and rule.phase != state.phase)
                or (rule.HasField("min_level") and state.level < rule.min_level)
                or (rule.HasField("max_level") and state.level > rule.max_level)
                or not stages.issuperset(rule.stage)
                or not stages.isdisjoint(rule.not_stage))
