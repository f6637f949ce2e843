"""The gradient check itself: it must catch a wrong gradient; and checks along a direction for larger shapes."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.layers.activation.activations import Sigmoid
from scaffe.layers.fully_connected.inner_product import Embed
from tests.layers.gradient_check import Case, check_direction, check_exhaustive, spread

SIGMOID = Case('type: "Sigmoid"', ((2, 3, 2, 2),))
EMBED = Case('type: "Embed" embed_param { input_dim: 3 num_output: 2 weight_filler { type: "xavier" } }',
             (np.array([0, 2, 2.0]),), gradient=())


@pytest.mark.parametrize("check", [check_exhaustive, check_direction])
def test_a_wrong_bottom_gradient_is_caught(check, monkeypatch: pytest.MonkeyPatch) -> None:
    check(SIGMOID)
    monkeypatch.setattr(Sigmoid, "differentiate", lambda self, x, y, gy, gx: np.multiply(gy, y * (1.001 - y), out=gx))
    with pytest.raises(AssertionError, match="by differences|along a direction"):
        check(SIGMOID)


@pytest.mark.parametrize("check", [check_exhaustive, check_direction])
def test_a_wrong_parameter_gradient_is_caught(check, monkeypatch: pytest.MonkeyPatch) -> None:
    check(EMBED)
    right = Embed.backward

    def wrong(self, top, propagate_down, bottom) -> None:
        right(self, top, propagate_down, bottom)
        self.blobs[1].diff[0] += 1e-3

    monkeypatch.setattr(Embed, "backward", wrong)
    with pytest.raises(AssertionError, match="parameter 1|along a direction"):
        check(EMBED)


CONT = np.ones((6, 4)) * (np.arange(6) > 0)[:, None]
RECURRENT = 'recurrent_param { num_output: 7 weight_filler { type: "xavier" } bias_filler { type: "uniform" } }'
LARGER = {
    "MVN": Case('type: "MVN"', ((3, 4, 9, 8),)),
    "Normalize": Case('type: "Normalize" norm_param { across_spatial: false channel_shared: false }', ((2, 8, 7, 6),)),
    "Interp": Case('type: "Interp" interp_param { height: 17 width: 11 }', ((2, 3, 9, 8),)),
    "Im2col": Case('type: "Im2col" convolution_param { kernel_size: 3 pad: 1 stride: 2 }', ((2, 3, 9, 8),)),
    "LSTM": Case(f'type: "LSTM" {RECURRENT}', (spread((6, 4, 5)), CONT), gradient=(0,)),
    "RNN": Case(f'type: "RNN" {RECURRENT}', (spread((6, 4, 5)), CONT), gradient=(0,)),
    "PReLU": Case('type: "PReLU"', ((4, 6, 5, 5),)),
}


@pytest.mark.parametrize("layer_type", LARGER)
def test_along_a_direction(layer_type: str) -> None:
    check_direction(LARGER[layer_type])
