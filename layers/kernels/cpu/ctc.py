"""Connectionist temporal classification (Graves et al., ICML 2006): cost and gradient of one sequence."""

from __future__ import annotations

import numpy as np

from scaffe.jit import compiled


@compiled
def ctc_cost(log_chances: np.ndarray, labels: np.ndarray, blank: int, gradient: np.ndarray) -> float:
    """-log of the probability of labels, int64 (n,), none of them blank, by the log of the softmax (steps, classes).
    Its gradient by the scores before their softmax is written. Both are 0 if the steps are too few for the labels, as
    in warp-ctc."""
    gradient[:, :] = 0
    n_steps, n_repeats = len(log_chances), 0
    for i in range(1, len(labels)):
        n_repeats += labels[i] == labels[i - 1]
    if len(labels) + n_repeats > n_steps or n_steps == 0:
        return 0.0
    classes = np.full(2 * len(labels) + 1, blank)  # the labels with a blank before, between and after them
    for i in range(len(labels)):
        classes[2 * i + 1] = labels[i]
    before, after = _before(log_chances, classes, blank), _after(log_chances, classes, blank)
    whole = before[-1, -1]
    if len(classes) > 1:
        whole = np.logaddexp(whole, before[-1, -2])
    for t in range(n_steps):
        for c in range(log_chances.shape[1]):
            gradient[t, c] = np.exp(log_chances[t, c])
        for s in range(len(classes)):
            gradient[t, classes[s]] -= np.exp(before[t, s] + after[t, s] - whole)
    return float(-whole)


@compiled
def _before(log_chances: np.ndarray, classes: np.ndarray, blank: int) -> np.ndarray:
    """Graves' alpha: log of the probability of each state after each step, (steps, states)."""
    out = np.full((len(log_chances), len(classes)), -np.inf)
    for t in range(len(log_chances)):
        for s in range(len(classes)):
            total = 0.0 if t == 0 and s < 2 else -np.inf
            if t > 0:
                total = out[t - 1, s]
                if s > 0:
                    total = np.logaddexp(total, out[t - 1, s - 1])
                if s > 1 and classes[s] != blank and classes[s] != classes[s - 2]:
                    total = np.logaddexp(total, out[t - 1, s - 2])
            out[t, s] = total + log_chances[t, classes[s]]
    return out


@compiled
def _after(log_chances: np.ndarray, classes: np.ndarray, blank: int) -> np.ndarray:
    """Graves' beta: log of the probability of all later steps from each state, (steps, states)."""
    out = np.full((len(log_chances), len(classes)), -np.inf)
    n_steps, n_places = out.shape
    for t in range(n_steps - 1, -1, -1):
        for s in range(n_places):
            total = 0.0 if t == n_steps - 1 and s >= n_places - 2 else -np.inf
            if t < n_steps - 1:
                total = out[t + 1, s] + log_chances[t + 1, classes[s]]
                if s + 1 < n_places:
                    total = np.logaddexp(total, out[t + 1, s + 1] + log_chances[t + 1, classes[s + 1]])
                if s + 2 < n_places and classes[s + 2] != blank and classes[s + 2] != classes[s]:
                    total = np.logaddexp(total, out[t + 1, s + 2] + log_chances[t + 1, classes[s + 2]])
            out[t, s] = total
    return out
