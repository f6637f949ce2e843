"""Gradients of large layers computed and updated one block of rows after another, so that they are never there whole.

Updates within backward, each as soon as its gradient is there, are known for whole parameters (Lv et al., "Full
Parameter Fine-tuning for Large Language Models with Limited Resources", ACL 2024); here a parameter comes in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from scaffe.memory.problem.chunks import Run, blocks_place
from scaffe.nets.net import Net
from scaffe.training.shard_updater import ShardUpdater


def row_gradients(net: Net, shards: Mapping[ShardUpdater, Run]) -> dict[ShardUpdater, Callable[[], None]]:
    """What computes the gradient of each shard of those layers whose gradients come by rows. All blocks are computed in
    one place, one after another.

    Args:
        net: its ``steps`` say which layers' gradients come by rows.
        shards: those that are updated behind backward, ascending, with the layers that each belongs to.
    """
    found: dict[ShardUpdater, Callable[[], None]] = {}
    runs = {run.first_layer: run for run in shards.values() if run.first_layer in net.steps.behind}
    start = blocks_place(net, runs.values()).start if runs else 0
    for layer in runs:
        node, own = net.nodes[layer], [shard for shard, run in shards.items() if run.first_layer == layer]
        for blob in node.layer.blobs:
            blob.bind_diff(None)  # nobody has all of it
        for shard, rows in zip(own, node.layer.param_rows, strict=True):
            shard.gradient_at = start
            found[shard] = partial(_compute, net, layer, rows, shard)
    return found


def _compute(net: Net, layer: int, rows: slice, shard: ShardUpdater) -> None:
    net.nodes[layer].backward_rows(rows, _diffs(net, layer, shard))


def _diffs(net: Net, layer: int, shard: ShardUpdater) -> list[np.ndarray]:
    """Of each of a layer's parameters, or of what a shard has of it, where its gradient is written."""
    found, ahead = [], shard.gradient_at - shard.interval.start
    for param, place in zip(net.params.params, net.params.slices, strict=True):
        start, stop = max(place.start, shard.interval.start), min(place.stop, shard.interval.stop)
        if param.layer_index == layer and start < stop:
            found.append(net.params.diff[start + ahead:stop + ahead])
    return found
