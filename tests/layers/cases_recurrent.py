"""Gradient cases of recurrent layers."""

from __future__ import annotations

import numpy as np

from tests.layers.gradient_check import Case, spread

CONT = np.array([[0, 0], [1, 0], [1, 1.0]])
PLAIN = 'recurrent_param { num_output: 2 weight_filler { type: "uniform" min: -1 } bias_filler { type: "uniform" } '
X = spread((3, 2, 3))
STATES = (spread((1, 2, 2), seed=3), spread((1, 2, 2), seed=4))


def recurrent(layer_type: str, n_states: int) -> list[Case]:
    """Plain; with a static input; with exposed states (which get no gradient) and x of four axes."""
    text = f'type: "{layer_type}" {PLAIN}'
    return [
        Case(text + "}", (X, CONT), gradient=(0,), batch=False),
        Case(text + "}", (X, CONT, spread((2, 2), seed=2)), gradient=(0, 2), batch=False, label="static"),
        Case(text + "expose_hidden: true }", (X.reshape(3, 2, 3, 1), np.ones((3, 2)), spread((2, 2), seed=2),
                                              *STATES[:n_states]),
             gradient=(0, 2), n_tops=1 + n_states, tops=(0,), batch=False, label="exposed"),
    ]


CASES: dict[str, list[Case]] = {
    "RNN": recurrent("RNN", 1),
    "LSTM": recurrent("LSTM", 2),
    "LSTMUnit": [Case('type: "LSTMUnit"', (spread((1, 3, 2), seed=1), spread((1, 3, 8), -2, 2, seed=2),
                                           np.array([[1, 0, 0.5]])), gradient=(0, 1), batch=False)],
}

NO_GRADIENT: dict[str, str] = {}
