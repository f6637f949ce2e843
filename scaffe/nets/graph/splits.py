"""Inserts Split layers where a blob is used more than once, so that the gradients of all uses add up."""

from __future__ import annotations

from collections import Counter
from typing import Any

from scaffe.proto import caffe_pb2

Top = tuple[int, int]  # layer index, top index


def insert_splits(net: Any) -> Any:
    """A new NetParameter with a Split layer after every top that is used several times, named as in Caffe.

    The split of top ``t``, number i of layer ``l``, is named ``t_l_i_split``. Its tops, ``t_l_i_split_0`` and so on, go
    to the uses in order. An explicit loss weight counts as the first use, and moves to the split's first top.
    """
    sources, uses, weights = _survey(net)
    split = type(net)()
    split.CopyFrom(net)
    del split.layer[:]
    handed_out: Counter[Top] = Counter()
    for index, original in enumerate(net.layer):
        layer = split.layer.add()
        layer.CopyFrom(original)
        for position, name in enumerate(original.bottom):
            top = sources.get((index, position))
            if top is not None and uses[top] > 1:
                layer.bottom[position] = f"{_split_name(net, top, name)}_{handed_out[top]}"
                handed_out[top] += 1
        for position, name in enumerate(original.top):
            top = (index, position)
            if uses[top] > 1:
                split.layer.append(_make_split(_split_name(net, top, name), name, uses[top], weights.get(top, 0.0)))
                if weights.get(top):
                    layer.ClearField("loss_weight")
                    handed_out[top] += 1
    return split


def _survey(net: Any) -> tuple[dict[Top, Top], Counter[Top], dict[Top, float]]:
    """The top that each bottom takes; how often each top is used; the tops' explicit loss weights."""
    newest: dict[str, Top] = {}
    sources: dict[Top, Top] = {}
    uses: Counter[Top] = Counter()
    weights: dict[Top, float] = {}
    for index, layer in enumerate(net.layer):
        for position, name in enumerate(layer.bottom):
            if name in newest:
                sources[index, position] = newest[name]
                uses[newest[name]] += 1
        for position, name in enumerate(layer.top):
            newest[name] = (index, position)
        for position, weight in enumerate(layer.loss_weight[: len(layer.top)]):
            weights[newest[layer.top[position]]] = weight
            uses[newest[layer.top[position]]] += weight != 0
    return sources, uses, weights


def _split_name(net: Any, top: Top, blob: str) -> str:
    return f"{blob}_{net.layer[top[0]].name}_{top[1]}_split"


def _make_split(name: str, bottom: str, n_tops: int, weight: float) -> Any:
    layer = caffe_pb2.LayerParameter(name=name, type="Split", bottom=[bottom])
    layer.top.extend(f"{name}_{k}" for k in range(n_tops))
    if weight:
        layer.loss_weight.extend(weight if k == 0 else 0.0 for k in range(n_tops))
    return layer
