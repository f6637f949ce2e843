"""What a cuDNN graph reads from host memory is there whenever it runs."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from scaffe.layers.kernels.cuda.cudnn.batch_norm import EPS, FORWARD, NormKey
from scaffe.layers.kernels.cuda.cudnn.graphs import Built


class Graph:
    """Takes addresses, and says whether the arrays that keys made are still there."""

    def __init__(self) -> None:
        self.made: dict[int, weakref.ref[np.ndarray]] = {}

    def execute(self, addresses: dict[int, int], workspace: int, handle: Any) -> None:
        array = self.made[addresses[EPS]]()
        assert array is not None, "epsilon's memory was given back"
        assert array == np.float32(0.25)


def test_epsilon_lives_as_long_as_the_graph(cp: Any, kind: str, monkeypatch: Any) -> None:
    if kind == "ours":
        return
    graph, constants = Graph(), NormKey.constants.fget

    def noted(key: NormKey) -> dict[int, np.ndarray]:
        found = constants(key)
        graph.made |= {array.ctypes.data: weakref.ref(array) for array in found.values()}
        return found

    monkeypatch.setattr(NormKey, "constants", property(noted))
    built = Built(graph, None, 0, NormKey(FORWARD, (2, 8, 3, 5), np.dtype(np.float32), 0.25, relu=False))
    for _ in range(2):
        built.run({}, cp.zeros(1, np.uint8))
