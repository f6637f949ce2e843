"""Batch normalisation with scale, bias, a sum and ReLU as cuDNN graphs.

cuDNN 9 has one engine for them. It needs channels in multiples of 16 bytes and a ReLU of slope 0. Backward recomputes
the sign of the ReLU's input from x. There is no engine for normalisation with given statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from scaffe.layers.kernels.cuda.cudnn.graphs import Sheet, data_type
from scaffe.layers.kernels.specs import Ints

X, SCALE, BIAS, MEAN, INVERSE, EPS, Y, GY, GX, OF_SCALE, OF_BIAS, ADDEND = range(1, 13)  # the tensors' numbers
FORWARD, BACKWARD = "batchnorm", "batchnorm_backward"
LARGE = {FORWARD: (X, Y), BACKWARD: (X, GY, GX)}
SMALL = {FORWARD: (SCALE, BIAS, MEAN, INVERSE), BACKWARD: (SCALE, MEAN, INVERSE, OF_SCALE, OF_BIAS)}


@dataclass(frozen=True)
class NormKey:
    """The key of a normalisation's plan (see ``graphs.Key``).

    Attributes:
        kind: FORWARD, by the batch's statistics, or BACKWARD.
        shape: logical (N, C, spatial...), as ``four_axes`` makes it.
        dtype: of x and y; all numbers per channel are float32.
        eps: added to the variance.
        relu: ReLU follows.
        adds: another tensor is added ahead of ReLU; for FORWARD.
        tf32: there are no products.
    """

    kind: str
    shape: Ints
    dtype: np.dtype
    eps: float
    relu: bool
    adds: bool = False
    tf32: bool = False

    @property
    def compiles(self) -> bool:
        """See Key. There is no other engine."""
        return True

    @property
    def tensors(self) -> Mapping[int, tuple[Ints, np.dtype]]:
        """See Key."""
        a_channel = (1, self.shape[1], *(1,) * (len(self.shape) - 2)), np.dtype(np.float32)
        found = dict.fromkeys(LARGE[self.kind], (self.shape, self.dtype))
        found |= dict.fromkeys(SMALL[self.kind], a_channel)
        found |= {BIAS: a_channel} if self.relu else {}
        return found | ({ADDEND: (self.shape, self.dtype)} if self.adds else {})

    @property
    def constants(self) -> Mapping[int, np.ndarray]:
        """See Key."""
        return {EPS: np.array(self.eps, np.float32)} if self.kind == FORWARD else {}

    def draw(self, sheet: Sheet) -> None:
        """See Key."""
        (self._draw_forward if self.kind == FORWARD else self._draw_backward)(sheet)

    def _draw_forward(self, sheet: Sheet) -> None:
        graph, eps = sheet.graph, sheet.constant(EPS, len(self.shape))
        y, mean, inverse, *_ = graph.batchnorm(
            input=sheet.tensor(X), scale=sheet.tensor(SCALE), bias=sheet.tensor(BIAS), in_running_mean=None,
            in_running_var=None, epsilon=eps, momentum=None)  # the running sums are Caffe's, not cuDNN's means
        if self.adds:
            y = graph.add(a=y, b=sheet.tensor(ADDEND))
        sheet.give(graph.relu(y) if self.relu else y, Y)
        sheet.give(mean, MEAN)
        sheet.give(inverse, INVERSE)

    def _draw_backward(self, sheet: Sheet) -> None:
        graph = sheet.graph
        x, gradient, scale, mean, inverse = map(sheet.tensor, (X, GY, SCALE, MEAN, INVERSE))
        if self.relu:
            y = graph.batchnorm_inference(input=x, mean=mean, inv_variance=inverse, scale=scale,
                                          bias=sheet.tensor(BIAS))
            gradient = graph.relu_backward(loss=gradient, input=y)
            gradient.set_data_type(data_type(self.dtype))  # the engine takes no wider one, though nobody sees it
        found = graph.batchnorm_backward(grad=gradient, input=x, scale=scale, mean=mean, inv_variance=inverse)
        for result, number in zip(found, (GX, OF_SCALE, OF_BIAS), strict=False):
            sheet.give(result, number)


def four_axes(shape: Ints) -> Ints:
    """A shape (N, C, spatial...) with all spatial axes as one, in four axes; shapes of four or five unchanged."""
    return shape if len(shape) in (4, 5) else (*shape[:2], prod(shape[2:]), 1)
