"""Gradient cases of users' layers."""

from __future__ import annotations

from tests.layers.gradient_check import Case, spread

CASES: dict[str, list[Case]] = {
    "Python": [
        Case('type: "Python" python_param { module: "tests.layers.user_layers" layer: "Half" }',
             (spread((2, 2, 2, 1), seed=1), spread((2, 2, 2, 1), seed=2)), n_tops=1),
    ],
}

NO_GRADIENT: dict[str, str] = {}
