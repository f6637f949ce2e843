"""Naive formulas of the sequence forks' layers."""

from __future__ import annotations

from itertools import product
from math import exp, log, tanh

import numpy as np


def lstm(x: np.ndarray, cont: np.ndarray, w_x: np.ndarray, w_h: np.ndarray, bias: np.ndarray, h: np.ndarray,
         c: np.ndarray) -> np.ndarray:
    """Outputs (T, N, D) of x (T, N, I), cell by cell; h and c, (N, D), are changed to the last states."""
    n_steps, n_items, _ = x.shape
    depth = h.shape[1]
    out = np.zeros((n_steps, n_items, depth))
    for t in range(n_steps):
        for n in range(n_items):
            gates = [bias[k] + sum(w_x[k, i] * x[t, n, i] for i in range(x.shape[2]))
                     + (sum(w_h[k, d] * h[n, d] for d in range(depth)) if cont[t, n] else 0) for k in range(4 * depth)]
            for d in range(depth):
                i, f, o = (1 / (1 + exp(-gates[k * depth + d])) for k in range(3))
                c[n, d] = (f * c[n, d] if cont[t, n] else 0) + i * tanh(gates[3 * depth + d])
                out[t, n, d] = o * tanh(c[n, d])
            h[n] = out[t, n]
    return out


def ctc(scores: np.ndarray, labels: list[int], blank: int) -> float:
    """-log of the sum over all paths (steps, classes) that collapse to the labels."""
    chances = [[exp(s) / sum(map(exp, row)) for s in row] for row in scores.tolist()]
    total = 0.0
    for path in product(range(scores.shape[1]), repeat=len(scores)):
        if collapsed(path, blank) == labels:
            chance = 1.0
            for t, k in enumerate(path):
                chance *= chances[t][k]
            total += chance
    return -log(total)


def collapsed(path: tuple[int, ...], blank: int, merges: bool = True) -> list[int]:
    """A path without repeats and blanks."""
    kept = [k for t, k in enumerate(path) if not (merges and t and path[t - 1] == k)]
    return [k for k in kept if k != blank]


def distance(a: list[int], b: list[int]) -> int:
    """Edit distance, by recursion."""
    if not a or not b:
        return len(a) + len(b)
    return min(distance(a[1:], b) + 1, distance(a, b[1:]) + 1, distance(a[1:], b[1:]) + (a[0] != b[0]))
