"""One rank's part of a net: the layers that it makes, its part of each parameter, and the whole from all parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from scaffe.layers.base.blob import Blob
from scaffe.layers.base.fillers import fill
from scaffe.layers.base.layer import TRAIN, Context, Layer
from scaffe.layers.dropout import Dropout
from scaffe.nets.parts import Portion
from scaffe.training.histories import gather_parts
from scaffe.training.partition.group import Group
from scaffe.training.partition.kinds import BY_COLUMNS, CLASSES, INPUTS, OUTPUTS
from scaffe.training.partition.moves import MOVES
from scaffe.training.partition.rewrite import Rewritten
from scaffe.training.partition.split_layers import LossByClasses, ProductByInputs, SharedDraws

EVERYTHING = slice(None)


class RankParts:
    """The Parts of one net on one rank.

    Args:
        rewritten: the rank's net; its products by outputs still count all outputs (``own_outputs`` mends that).
        originals: layer name → the whole net's message.
        group: the ranks of the replica.
        replicas: the replica's number, and how many there are.
        is_training: whether the net is trained.
    """

    def __init__(self, rewritten: Rewritten, originals: dict[str, Any], group: Group, replicas: tuple[int, int],
                 is_training: bool) -> None:
        self._net, self._originals, self.group, self._is_training = rewritten, originals, group, is_training
        self._replicas = replicas
        self._portions: dict[str, list[Portion]] = {}
        self._width_of: dict[str, Callable[[], int]] = {}  # of the whole blob, by the name of one in columns

    def own_outputs(self) -> None:
        """Let the products by outputs count this rank's outputs; their fillers are drawn for the whole layer."""
        for layer in self._net.message.layer:
            if self._net.kinds.get(layer.name) == OUTPUTS:
                p = layer.inner_product_param
                own = self.group.columns(p.num_output)
                p.num_output = own.stop - own.start
                p.ClearField("weight_filler")
                p.ClearField("bias_filler")

    # -- building ------------------------------------------------------------------------------------------
    def layer(self, param: Any, context: Context, bottoms: Sequence[Blob]) -> Layer | None:
        """See Parts."""
        n_columns = self._width(param)
        if param.name in self._net.moves:
            move = MOVES[self._net.moves[param.name]](param, context, self.group, n_columns)
            self._width_of[param.top[0]] = lambda: move.n_columns
            return move
        kind = self._net.kinds[param.name]
        if kind in (OUTPUTS, BY_COLUMNS):
            width = self._originals[param.name].inner_product_param.num_output if kind == OUTPUTS else n_columns
            self._width_of.update(dict.fromkeys(param.top, lambda: width))
        if kind == INPUTS:
            return ProductByInputs(param, context, self.group, not self._is_training)
        if kind == CLASSES:
            return LossByClasses(param, context, self.group, n_columns)
        if param.type == "Dropout" and context.phase == TRAIN and self._is_training:
            context = replace(context)
            n_columns = n_columns if kind == BY_COLUMNS else 0
            draws: Any = SharedDraws(context.rng, self.group, self._replicas, bottoms[0], n_columns)
            context.draws = draws
            return Dropout(param, context)
        return None

    def _width(self, param: Any) -> int:
        """Columns of the whole of a layer's first bottom; 0 where that does not lie in columns."""
        return self._width_of[param.bottom[0]]() if param.bottom and param.bottom[0] in self._width_of else 0

    def fill(self, param: Any, layer: Layer) -> None:
        """See Parts: the whole layer's numbers are drawn, one parameter after the other, and the part is kept."""
        kind = self._net.kinds.get(param.name)
        if kind not in (OUTPUTS, INPUTS):
            return
        whole = self._originals[param.name].inner_product_param
        self._portions[param.name] = self._product_portions(self._width(param), kind, whole, layer)
        fillers = (whole.weight_filler, whole.bias_filler)
        for portion, blob, filler in zip(self._portions[param.name], layer.blobs, fillers, strict=False):
            values = np.empty(portion.shape, blob.dtype)
            fill(values, filler, layer.context.rng)
            blob.data[...] = portion.of(values)

    def _product_portions(self, width: int, kind: str, whole: Any, layer: Layer) -> list[Portion]:
        n_outputs, weights = whole.num_output, layer.blobs[0].shape
        n_inputs = width if kind == INPUTS else weights[0 if whole.transpose else 1]
        outputs = self.group.columns(n_outputs) if kind == OUTPUTS else EVERYTHING
        inputs = self.group.columns(n_inputs) if kind == INPUTS else EVERYTHING
        shape, index = (n_outputs, n_inputs), (outputs, inputs)
        if whole.transpose:
            shape, index = (n_inputs, n_outputs), (inputs, outputs)
        return [Portion(shape, index), Portion((n_outputs,), (outputs,))][:len(layer.blobs)]

    # -- files ---------------------------------------------------------------------------------------------
    def portion(self, layer: str, blob: int) -> Portion | None:
        """See Parts."""
        found = self._portions.get(layer)
        return found[blob] if found and not found[blob].is_whole else None

    def original(self, param: Any) -> Any:
        """See Parts."""
        return self._originals.get(param.name)

    def whole(self, layer: str, blob: int, part: np.ndarray) -> np.ndarray:
        """See Parts."""
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
        index = tuple(EVERYTHING if place == EVERYTHING else self.group.columns(n, rank)
                      for place, n in zip(mine.index, mine.shape, strict=True))
        return Portion(mine.shape, index)
