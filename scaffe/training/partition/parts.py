"""One rank's part of a net: its layers, its part of each parameter, and whole parameters from all parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scaffe.layers.activation.dropout import Dropout
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.context import Context
from scaffe.layers.base.fillers import fill
from scaffe.layers.base.layer import TRAIN, Layer, layer_types
from scaffe.layers.vision.windows import fill_places
from scaffe.nets.net_layer import Portion
from scaffe.training.partition import sharding as s
from scaffe.training.partition.group import Group
from scaffe.training.partition.layers import single_rank
from scaffe.training.partition.layers.collective import BY_CLASS, SharedDraws, SharedNorm
from scaffe.training.partition.layers.concat_slice import CONCAT_AND_SLICE
from scaffe.training.partition.layers.halo import Crop, Halo
from scaffe.training.partition.layers.inner_product import GatherGemmOverlap, ProductByInputs
from scaffe.training.partition.layers.interior import INTERIOR_FIRST, HaloOverlap
from scaffe.training.partition.layers.redistribution import REDISTRIBUTIONS, Redistribution, RowsToWhole
from scaffe.training.partition.planner.image_shares import index_map_of, joined_axis
from scaffe.training.partition.planner.rewrite import EVERYTHING, Rewritten, portions
from scaffe.training.updater import gather_parts


class RankParts:
    """The Parts of one net on one rank.

    Args:
        rewritten: the rank's net; its products by outputs still count all outputs (``own_outputs`` mends that).
        replicas: the replica's number, and how many there are.
        batch: images of all ranks, if these share them out unevenly; else 0.
    """

    def __init__(self, rewritten: Rewritten, originals: dict[str, Any], group: Group, replicas: tuple[int, int],
                 is_training: bool, batch: int = 0) -> None:
        self._net, self._originals, self.group, self._is_training = rewritten, originals, group, is_training
        self._replicas, self._batch = replicas, batch
        self._portions: dict[str, list[Portion]] = {}
        self._moves: dict[str, Redistribution] = {}  # by their tops
        self._lengths: dict[str, Callable[[], int]] = {}  # blob that is cut → of the whole along the axis

    def own_outputs(self) -> None:
        """Let split layers count this rank's outputs; their fillers are drawn for the whole layer."""
        for layer in self._net.message.layer:
            kind = self._net.shardings.get(layer.name)
            if kind == s.ONE_RANK:
                for field in filter(layer.HasField, single_rank.FILLED):
                    getattr(layer, field).ClearField("weight_filler")
                    getattr(layer, field).ClearField("bias_filler")
            elif kind == s.OUTPUTS and layer.type == "InnerProduct":
                self._own_products(layer.inner_product_param)
            elif kind == s.BY_BANDS and layer.type == "LocalConvolution":
                layer.local_convolution_param.ClearField("weight_filler")
                layer.local_convolution_param.ClearField("bias_filler")
            elif kind in (s.OUTPUTS, s.BY_CHANNELS) and layer.HasField("convolution_param"):
                self._own_products(layer.convolution_param)
                if kind == s.BY_CHANNELS:
                    layer.convolution_param.group = self._own(layer.convolution_param.group)
            elif kind == s.BY_CHANNELS:  # their fillers are drawn for the whole layer, too
                for field in ("scale_param", "bias_param", "prelu_param"):
                    if layer.HasField(field):
                        getattr(layer, field).ClearField("filler")

    def _own_products(self, p: Any) -> None:
        p.num_output = self._own(p.num_output)
        p.ClearField("weight_filler")
        p.ClearField("bias_filler")

    def _own(self, length: int) -> int:
        place = self.group.columns(length)
        return int(place.stop - place.start)

    def layer(self, param: Any, context: Context, bottoms: Sequence[Blob]) -> Layer | None:
        length = self._length(param)
        if param.name in self._net.redistributions:
            return self._between(param, context, length)
        kind = self._net.shardings[param.name]
        if kind in s.CUTS and param.type in CONCAT_AND_SLICE:
            return self._concat_or_slice(param, context, s.CUTS[kind], len(bottoms[0].shape))
        if kind in s.CUTS or kind == s.OUTPUTS:
            self._lengths.update(dict.fromkeys(param.top, lambda: self._top_length(param, kind, length)))
        before = self._moves.get(param.bottom[0]) if param.bottom else None
        if isinstance(before, Halo) and param.type in INTERIOR_FIRST and HaloOverlap.pays(before):
            return HaloOverlap(param, context, layer_types.get(param.type), before)
        if isinstance(before, RowsToWhole) and param.type == "InnerProduct" and self.group.spans_nodes:
            return GatherGemmOverlap(param, context, before)
        if kind == s.ONE_RANK:
            return single_rank.Absent(param, context) if self.group.rank != single_rank.FIRST else None
        if kind == s.INPUTS:
            return ProductByInputs(param, context, self.group, not self._is_training)
        if kind == s.CLASSES:
            return BY_CLASS[param.type](param, context, self.group, length)
        if kind in (s.REPLICATED, s.BY_BANDS) and param.type == "BatchNorm" and not (
                param.batch_norm_param.use_global_stats if param.batch_norm_param.HasField("use_global_stats") else
                context.phase != TRAIN):  # statistics of what the ranks have different parts of
            return SharedNorm(param, context, self.group)
        if param.type == "Dropout" and context.phase == TRAIN and self._is_training:
            draws: Any = SharedDraws(context.rng, self.group, self._replicas, bottoms[0], s.CUTS.get(kind), length,
                                     self._batch)
            context = replace(context)
            context.draws = draws
            return Dropout(param, context)
        return None

    def _between(self, param: Any, context: Context, length: int) -> Redistribution:
        """A layer that moves a blob."""
        lies, needed = self._net.redistributions[param.name]
        if s.HALO in (lies, needed):
            window = self._net.windows[param.name]
            made: Redistribution = (Halo if needed == s.HALO else Crop)(param, context, self.group, length, window)
            top_length = window.outputs(length) if lies == s.HALO else length
            self._lengths[param.top[0]] = lambda: top_length
        else:
            make = (REDISTRIBUTIONS | single_rank.SINGLE_RANK_REDISTRIBUTIONS)[lies, needed]
            made = make(param, context, self.group, length)
            self._lengths[param.top[0]] = lambda: made.length
        self._moves[param.top[0]] = made
        return made

    def _concat_or_slice(self, param: Any, context: Context, cut: str, n_axes: int) -> Layer | None:
        """A Concat or Slice of cut blobs; None where it works along another axis than that."""
        lengths = tuple(self._lengths[name]() for name in param.bottom)
        is_along = s.AXES[cut] == joined_axis(param, n_axes)
        index_map = index_map_of(param, lengths) if is_along else None
        tops = lengths[:1] * len(param.top) if index_map is None else (
            (sum(lengths),) if param.type == "Concat" else index_map.lengths)
        self._lengths.update({name: lambda n=n: n for name, n in zip(param.top, tops, strict=True)})
        return None if index_map is None else CONCAT_AND_SLICE[param.type](param, context, self.group, index_map, cut)

    def _length(self, param: Any) -> int:
        """Of the whole of a layer's first bottom along the axis that is cut; 0 where it is not cut."""
        return self._lengths[param.bottom[0]]() if param.bottom and param.bottom[0] in self._lengths else 0

    def _top_length(self, param: Any, kind: str, length: int) -> int:
        """Of the whole of a layer's tops along the axis that is cut, from that of its first bottom."""
        whole = self._originals[param.name]
        if kind == s.OUTPUTS and whole.type == "InnerProduct":
            return int(whole.inner_product_param.num_output)
        if kind in (s.OUTPUTS, s.BY_CHANNELS) and whole.HasField("convolution_param"):
            return int(whole.convolution_param.num_output)
        window = self._net.windows.get(param.name)
        return length if window is None or window.crops else window.outputs(length)

    def fill(self, param: Any, layer: Layer) -> None:
        """See Parts: the whole layer's numbers are drawn, one parameter after the other, and the part is kept."""
        original = self._originals.get(param.name)
        if original is None:
            return
        kind, shapes = self._net.shardings[param.name], [blob.shape for blob in layer.blobs]
        found = single_rank.single_rank_portions(original, layer) if kind == s.ONE_RANK else portions(
            original, kind, self._length(param), shapes, self.group.columns)
        if not found:
            return
        self._portions[param.name] = [portion for portion, _ in found]
        for (portion, filler), blob in zip(found, layer.blobs, strict=True):
            if filler is not None:
                values = np.empty(portion.shape, blob.dtype)
                filled = fill_places if original.type == "LocalConvolution" and values.ndim > 3 else fill
                filled(values, filler, layer.context.rng)
                blob.data[...] = portion.of(values)

    def portion(self, layer: str, blob: int) -> Portion | None:
        found = self._portions.get(layer)
        return found[blob] if found and not found[blob].is_whole else None

    def original(self, param: Any) -> Any:
        return self._originals.get(param.name)

    def whole(self, layer: str, blob: int, part: np.ndarray) -> np.ndarray:
        mine = self.portion(layer, blob)
        if mine is None:
            return part
        everyone = [self._portion_of(rank, mine) for rank in range(self.group.n_ranks)]
        ends = np.cumsum([0, *(int(np.prod(portion.own_shape)) for portion in everyone)])
        own = [[(int(ends[self.group.rank]), np.ascontiguousarray(part).reshape(-1))]]
        gathered = gather_parts(own, int(ends[-1]), part.dtype, self.group.communicator)
        if not gathered:
            return part
        whole = np.empty(mine.shape, part.dtype)
        for portion, start, end in zip(everyone, ends, ends[1:], strict=False):
            whole[portion.index] = gathered[0][start:end].reshape(portion.own_shape)
        return whole

    def _portion_of(self, rank: int, mine: Portion) -> Portion:
        """Another rank's part of a parameter of which this one has ``mine``."""
        if mine.on_single_rank:
            return single_rank.single_rank_portion(mine.shape, rank == single_rank.FIRST)
        index = tuple(EVERYTHING if place == EVERYTHING else self.group.columns(n, rank)
                      for place, n in zip(mine.index, mine.shape, strict=True))
        return Portion(mine.shape, index)
