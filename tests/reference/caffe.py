"""What BVLC Caffe 1.0 itself computed (CPU build, float32): layer by layer, forward and backward.

``caffe_layers.npz`` was written by a C++ program that gave each layer its prototxt and bottoms, seed 1701 before the
set-up and again before forward, and to element j of top i the gradient sin(j + 1 + i) / 2 (1 for scalars).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("caffe_layers.npz")


@dataclass(frozen=True)
class Recorded:
    """One layer's run.

    Attributes:
        name, prototxt, phase, in_place: the layer.
        propagate_down: per bottom, as backward was asked; None where there was no backward.
        inputs, blobs, tops: bottoms' data, parameters after filling, tops' data.
        bottom_diffs, blob_diffs: gradients; None for bottoms that were not asked for.
    """

    name: str
    prototxt: str
    phase: int
    in_place: bool
    propagate_down: list[bool] | None
    inputs: list[np.ndarray]
    blobs: list[np.ndarray]
    tops: list[np.ndarray]
    bottom_diffs: list[np.ndarray | None]
    blob_diffs: list[np.ndarray | None]


def recorded() -> list[Recorded]:
    """All runs."""
    with np.load(FILE) as file:
        values, told = file["values"], json.loads(str(file["names"]))
    arrays, start = {}, 0
    for name, shape in told["arrays"].items():
        n_elems = int(np.prod(shape, dtype=int))
        arrays[name] = values[start : start + n_elems].reshape(shape)
        start += n_elems

    def run(number: int, case: dict) -> Recorded:
        counts = {"input": case["n_inputs"], "blob": case["n_blobs"], "top": case["n_tops"],
                  "bottom_diff": case["n_inputs"], "blob_diff": case["n_blobs"]}
        groups = [[arrays.get(f"{number}.{kind}{j}") for j in range(n)] for kind, n in counts.items()]
        fields = "name", "prototxt", "phase", "in_place", "propagate_down"
        return Recorded(*(case[field] for field in fields), *groups)

    return [run(number, case) for number, case in enumerate(told["cases"])]


def top_diff(shape: tuple[int, ...], index: int) -> np.ndarray:
    """The gradient that was given to top ``index``."""
    if not shape:
        return np.float32(1)
    n_elems = int(np.prod(shape, dtype=int))
    return (np.sin(np.arange(1, n_elems + 1, dtype=np.float32) + index) / 2).reshape(shape)
