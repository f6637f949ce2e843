"""Convolutions, with bias and ReLU fused, as cuDNN graphs. One spatial axis is treated as two, the first of size 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scaffe.layers.kernels.cuda.cudnn.graphs import Sheet
from scaffe.layers.kernels.cuda.precision import precision
from scaffe.layers.kernels.specs import ConvSpec, Ints

X, W, Y, BIAS = 1, 2, 3, 4  # the tensors' numbers in every graph; gradients have their values' numbers
FORWARD, BY_DATA, BY_WEIGHTS = "conv_fprop", "conv_dgrad", "conv_wgrad"
CONSTANTS: Mapping[int, np.ndarray] = {}


@dataclass(frozen=True)
class ConvKey:
    """The key of a convolution's plan (see ``graphs.Key``).

    Attributes:
        kind: FORWARD, BY_DATA or BY_WEIGHTS.
        spec: the geometry, of two or three spatial axes.
        tf32: whether float32 products may be TF32's.
        bias: a bias is added.
        slope: ReLU of that slope follows; None is none.
    """

    kind: str
    spec: ConvSpec
    tf32: bool
    bias: bool = False
    slope: float | None = None

    @property
    def dtype(self) -> np.dtype:
        """See Key."""
        return np.dtype(self.spec.dtype)

    @property
    def compiles(self) -> bool:
        """See Key. Bias and ReLU on half types have no other engines; plain convolutions have many."""
        return self.bias or self.slope is not None

    @property
    def constants(self) -> Mapping[int, np.ndarray]:
        """See Key."""
        return CONSTANTS

    @property
    def tensors(self) -> Mapping[int, tuple[Ints, np.dtype]]:
        """See Key. For half types, sums are float32 inside, but cuDNN 9 returns results only in the half type."""
        spec = self.spec
        shapes = {X: spec.in_shape, W: spec.weight_shape, Y: spec.out_shape}
        found = {number: (shape, self.dtype) for number, shape in shapes.items()}
        if self.bias:
            found[BIAS] = (1, spec.n_output, *(1,) * len(spec.kernel)), np.dtype(np.float32)
        return found

    def draw(self, sheet: Sheet) -> None:
        """See Key."""
        spec, graph = self.spec, sheet.graph
        window: dict[str, Any] = {"padding": list(spec.pad), "stride": list(spec.stride),
                                  "dilation": list(spec.dilation)}
        if self.kind == FORWARD:
            result, number = graph.conv_fprop(sheet.tensor(X), sheet.tensor(W), **window), Y
        elif self.kind == BY_DATA:
            result, number = graph.conv_dgrad(sheet.tensor(Y), sheet.tensor(W), **window), X
        else:
            result, number = graph.conv_wgrad(sheet.tensor(X), sheet.tensor(Y), **window), W
        if self.bias:
            result = graph.bias(result, sheet.tensor(BIAS))
        if self.slope is not None:
            result = graph.relu(result, negative_slope=self.slope) if self.slope else graph.relu(result)
        sheet.give(result, number)


def widened(spec: ConvSpec) -> ConvSpec:
    """A geometry of one spatial axis as one of two, the first of size 1; others unchanged."""
    if len(spec.kernel) != 1:
        return spec
    n, c, length = spec.in_shape
    return replace(spec, in_shape=(n, c, 1, length), kernel=(1, *spec.kernel), stride=(1, *spec.stride),
                   pad=(0, *spec.pad), dilation=(1, *spec.dilation))


def key_of(kind: str, spec: ConvSpec, bias: bool = False, slope: float | None = None) -> ConvKey:
    """The key of a pass, with the current setting of TF32."""
    return ConvKey(kind, widened(replace(spec, bias=False)), precision.tf32, bias, slope)
