"""A net on the example's images as a function of its parameters: loss and gradient of some images, and accuracy."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nets.prototxt import prototxt

import scaffe
from sandblaster_parts.training import example

N_TEST = 500
MLP = """layer {{ name: "input" type: "Input" top: "data" top: "label"
  input_param {{ shape {{ dim: {n} dim: 1 dim: 28 dim: 28 }} shape {{ dim: {n} }} }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param {{ num_output: 64
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param {{ num_output: 10
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""


class Task:
    """Gradients are computed by our layers, a fixed number of images at a time.

    Args:
        data: folder of the databases.
        net: "mlp" (784-64-10) or "lenet".

    Attributes:
        n_images: for training.
        first: parameters to begin from, (n_elems,) float32.
    """

    def __init__(self, data: Path, net: str) -> None:
        self._name = net
        self._nets: dict[int, scaffe.Net] = {}
        self._traces: dict[str, tuple[list[Any], Iterator[Any]]] = {}
        scaffe.set_random_seed(7)
        (self._x, self._y), (tx, ty) = example(data, "train"), example(data, "test")
        self._tests = tx[:N_TEST].astype(np.float32).reshape(-1, 1, 28, 28), ty[:N_TEST]
        self._x = self._x.astype(np.float32).reshape(-1, 1, 28, 28)
        self.n_images = len(self._y)
        self.first = self._net(N_TEST)._net.params.data.copy()

    def gradient(self, w: np.ndarray, images: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean loss and its gradient, a copy, at parameters ``w`` over the images with these numbers."""
        view = self._net(len(images))
        built = view._net
        view.blobs["data"].data[...], view.blobs["label"].data[...] = self._x[images], self._y[images]
        built.params.data[:] = w
        built.clear_param_diffs()
        loss = float(built.forward())
        built.backward()
        return loss, built.params.diff.copy()

    def trace(self, name: str, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """What an iterator gives, computed once for all who ask for that name."""
        known, rest = self._traces.setdefault(name, ([], make()))
        for i in itertools.count():
            if i == len(known):
                known.append(next(rest))
            yield known[i]

    def accuracy(self, w: np.ndarray) -> float:
        """Share of the test images that are told right; 0.1, by chance, where a parameter is not finite."""
        if not np.isfinite(w).all():
            return 0.1
        view = self._net(N_TEST)
        view.blobs["data"].data[...], view.blobs["label"].data[...] = self._tests
        view._net.params.data[:] = w
        view.forward()
        scores = view.blobs["ip2"].data
        return float((scores.argmax(1) == self._tests[1]).mean())

    def _net(self, n: int) -> scaffe.Net:
        if n not in self._nets:
            text = MLP.format(n=n) if self._name == "mlp" else prototxt(self._name, n)
            with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
                file.write(text)
                file.flush()
                self._nets[n] = scaffe.Net(file.name, scaffe.TRAIN)
        return self._nets[n]
