"""The gradient of a convolution's bottom with other gradients added and a ReLU's backward behind, as one cuDNN graph:
what a sum of gradients at a split would read again stays in registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, ClassVar

import numpy as np

from scaffe.layers.kernels.cuda.cudnn import graphs, plans
from scaffe.layers.kernels.cuda.cudnn.graphs import Built, Sheet
from scaffe.layers.kernels.cuda.cudnn.timing import operands
from scaffe.layers.kernels.cuda.elementwise import add_up, relu_backward
from scaffe.layers.kernels.specs import ConvSpec, Ints, storage_strides

GY, W, GX, SIGNS, ZERO, ADDENDS = range(1, 7)  # the tensors' numbers; addends have those from ADDENDS on
MOST_ADDENDS = 3  # as many as one pass of ``add_up`` takes beside the convolution's own


@dataclass(frozen=True)
class SumKey:
    """The ``graphs.Key`` of such a graph, of a geometry of two or three spatial axes.

    Attributes:
        n_addends: how many gradients are added; one at least, unless it masks.
        masks: whether the sum is 0 where the bottom's data are not above 0.
        bits: whether it reads sign bits for that, not the data.
    """

    spec: ConvSpec
    tf32: bool
    n_addends: int
    masks: bool
    bits: bool = False
    compiles: ClassVar[bool] = True  # there is no other engine

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.spec.dtype)

    @property
    def tensors(self) -> Mapping[int, tuple[Ints, np.dtype]]:
        spec = self.spec
        shapes = {GY: spec.out_shape, W: spec.weight_shape, GX: spec.in_shape}
        shapes |= dict.fromkeys(range(ADDENDS, ADDENDS + self.n_addends), spec.in_shape)
        found = {number: (shape, self.dtype) for number, shape in shapes.items()}
        return found | ({SIGNS: (spec.in_shape, graphs.SIGNS if self.bits else self.dtype)} if self.masks else {})

    @property
    def constants(self) -> Mapping[int, np.ndarray]:
        return {ZERO: np.zeros((), np.float32)} if self.bits else {}

    def draw(self, sheet: Sheet) -> None:
        """Sums are float32: the result is rounded once."""
        spec, graph = self.spec, sheet.graph
        result = graph.conv_dgrad(sheet.tensor(GY), sheet.tensor(W), padding=list(spec.pad), stride=list(spec.stride),
                                  dilation=list(spec.dilation))
        result.set_dim(list(spec.in_shape)).set_stride(list(storage_strides(spec.in_shape)))  # strides leave it open
        for number in range(ADDENDS, ADDENDS + self.n_addends):
            result = graph.add(a=result, b=sheet.tensor(number))
        if self.bits:
            zero = sheet.constant(ZERO, len(spec.in_shape))
            result = graph.binary_select(input0=result, input1=zero, mask=sheet.tensor(SIGNS))
        elif self.masks:
            result = graph.relu_backward(loss=result, input=sheet.tensor(SIGNS))
        sheet.give(result, GX)


def add_behind(gx: Any, addends: Sequence[Any], signs: Any) -> None:
    """What the graph does, on a gradient that is there already."""
    if addends:
        add_up([gx, *addends], gx, signs)
    else:
        relu_backward(signs, gx, gx, 0.0)


Plain = Callable[[Any, Any, Any, Any], None]


class SummedGradient:
    """One geometry's, built when it is first asked for.

    Args:
        spec: of two or three spatial axes.
        plain: writes the gradient alone, from the top's, weights in the kernels' order, the place to write to, and a
            workspace.
        n_plain_bytes: of that workspace.
    """

    def __init__(self, spec: ConvSpec, tf32: bool, plain: Plain, n_plain_bytes: int) -> None:
        self._spec, self._tf32, self._plain, self._n_plain_bytes = spec, tf32, plain, n_plain_bytes
        self._built: dict[tuple[int, bool], Built | None] = {}
        self._by_bits: dict[int, Built | None] = {}

    def prepare(self, n_addends: int, masks: bool) -> Built | None:
        """The graph; None where cuDNN has none, or ``choose`` takes a sum behind the plain gradient."""
        if (n_addends, masks) not in self._built:
            key = SumKey(self._spec, self._tf32, n_addends, masks)
            found = plans.build(key) if n_addends <= MOST_ADDENDS else None
            self._built[n_addends, masks] = found if found is not None and self._is_better(found) else None
        return self._built[n_addends, masks]

    def prepare_bits(self, n_addends: int) -> Built | None:
        """The graph that masks by sign bits; None where cuDNN has none, or ``choose`` takes one that reads data."""
        if n_addends not in self._by_bits:
            other = self.prepare(n_addends, True)
            whole = prod(self._spec.in_shape) % 8 == 0
            found = other and whole and plans.build(SumKey(self._spec, self._tf32, n_addends, True, bits=True))
            self._by_bits[n_addends] = found if found and other and _is_faster(found, other) else None
        return self._by_bits[n_addends]

    def run(self, built: Built, gy: Any, kernels: Any, gx: Any, addends: Sequence[Any], signs: Any,
            workspace: Any) -> None:
        """Write the sum to gx, which is none of the others."""
        arrays = {GY: gy, W: kernels, GX: gx, **dict(enumerate(addends, ADDENDS))}
        built.run(arrays | ({} if signs is None else {SIGNS: signs}), workspace)

    def _is_better(self, built: Built) -> bool:
        arrays, workspace = operands(built.key, max(built.n_workspace_bytes, self._n_plain_bytes))
        gx, addends = arrays[GX].reshape(-1), [a.reshape(-1) for number, a in arrays.items() if number >= ADDENDS]
        signs = arrays[SIGNS].reshape(-1) if SIGNS in arrays else None

        def in_two() -> None:
            self._plain(arrays[GY], arrays[W], arrays[GX], workspace)
            add_behind(gx, addends, signs)
        return plans.chosen_way(built.key, {
            "one graph": plans.Way(lambda: built.run(arrays, workspace), built.n_workspace_bytes),
            "a sum behind": plans.Way(in_two, self._n_plain_bytes)}) == "one graph"


def _is_faster(bits: Built, data: Built) -> bool:
    """Whether ``choose`` takes the first of two graphs."""
    timed = {"sign bits": bits, "data": data}
    return plans.chosen_way(bits.key, {
        name: plans.Way(partial(built.run, *operands(built.key, built.n_workspace_bytes)), built.n_workspace_bytes)
        for name, built in timed.items()}) == "sign bits"
