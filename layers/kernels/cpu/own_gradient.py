"""Convolutions whose weights' gradient another kernel computes than the rest."""

from __future__ import annotations

from math import prod
from typing import Protocol

import numpy as np

from scaffe.layers.kernels.cpu.bias import add_gradients
from scaffe.layers.kernels.extents import expect_elems
from scaffe.layers.kernels.plans import WeightedPlan
from scaffe.layers.kernels.specs import ConvSpec


class Gradient(Protocol):
    """Computes the gradient of one geometry's weights."""

    def run(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, overwrite: bool) -> None:
        """Add the gradient to gw, in Caffe's order, or write it. Images lie channels-last."""

    def working_bytes(self) -> dict[str, int]:
        """Bytes of working memory that ``run`` uses, by name."""


class OwnGradient:
    """One geometry; see ``WeightedPlan``.

    Args:
        others: computes everything else.
        spec: the geometry.
        gradient: computes the gradient of the weights.

    Attributes:
        gradient: see there.
    """

    def __init__(self, others: WeightedPlan, spec: ConvSpec, gradient: Gradient) -> None:
        self._others, self.forward, self.backward_data = others, others.forward, others.backward_data
        self.spec, self.gradient = spec, gradient
        self._sizes = prod(spec.in_shape), prod(spec.weight_shape), prod(spec.out_shape)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        """See WeightedPlan."""
        for n_elems, array in zip(self._sizes, (x, gw, gy), strict=True):
            expect_elems(n_elems, array)
        self.gradient.run(x, gy, gw, overwrite)
        if gb is not None:
            add_gradients(gy.reshape(-1, self.spec.n_output), gb, overwrite)

    def working_bytes(self) -> dict[str, int]:
        """Bytes by name of its working memory, which the plans of a thread share."""
        found: dict[str, int] = getattr(self._others, "working_bytes", dict)()
        mine = self.gradient.working_bytes()
        return {name: max(found.get(name, 0), mine.get(name, 0)) for name in {*found, *mine}}
