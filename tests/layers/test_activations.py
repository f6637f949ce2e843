"""Activations by value: every option, both storage orders, and the far ends of float32."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from scaffe.errors import LayerError
from scaffe.layers.kernels import cpu
from tests.layers.rig import Rig, spread
from tests.reference import activations as reference

OPTIONS = [
    ("Sigmoid", "", {}), ("TanH", "", {}), ("AbsVal", "", {}), ("BNLL", "", {}), ("ELU", "", {}),
    ("ELU", "elu_param { alpha: 0.3 }", {"alpha": 0.3}), ("Swish", "", {}),
    ("Swish", "swish_param { beta: 2.5 }", {"beta": 2.5}),
    ("Clip", "clip_param { min: -0.5 max: 1 }", {"low": -0.5, "high": 1}), ("Threshold", "", {}),
    ("Threshold", "threshold_param { threshold: 0.5 }", {"limit": 0.5}),
    ("Power", "", {}), ("Power", "power_param { power: 3 scale: -0.5 shift: 1.5 }",
                        {"power": 3, "scale": -0.5, "shift": 1.5}),
    ("Power", "power_param { power: 0 }", {"power": 0}), ("Power", "power_param { scale: 0 shift: 2 power: 4 }",
                                                          {"scale": 0, "shift": 2, "power": 4}),
    ("Exp", "", {}), ("Exp", "exp_param { base: 3 scale: 0.5 shift: -1 }", {"base": 3, "scale": 0.5, "shift": -1}),
    ("Log", "log_param { shift: 4 }", {"shift": 4}),
    ("Log", "log_param { base: 2 scale: 0.5 shift: 3 }", {"base": 2, "scale": 0.5, "shift": 3}),
]


@pytest.mark.parametrize(("layer_type", "text", "options"), OPTIONS, ids=lambda v: str(v))
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 2, 3)])
def test_value(layer_type: str, text: str, options: dict, shape: tuple[int, ...]) -> None:
    x = spread(shape, -3, 3)
    got = Rig(f'type: "{layer_type}" {text}', [x]).forward()[0]
    expected = reference.each(reference.FUNCTIONS[layer_type], x, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("layer_type", ["BNLL", "Clip", "ELU", "Exp", "Sigmoid", "Swish", "TanH"])
def test_in_place_gives_the_same(layer_type: str) -> None:
    text = f'type: "{layer_type}"' + (" clip_param { min: -1 max: 1 }" if layer_type == "Clip" else "")
    x, gy = spread((2, 3, 2, 2), -3, 3), spread((2, 3, 2, 2), seed=9)
    apart, inside = Rig(text, [x]), Rig(text, [x], in_place=True)
    np.testing.assert_array_equal(apart.forward()[0], inside.forward()[0])
    np.testing.assert_allclose(apart.backward([gy])[0][0], inside.backward([gy])[0][0], rtol=1e-12)


@pytest.mark.parametrize(("layer_type", "low", "high"), [("Sigmoid", 0, 1), ("TanH", -1, 1), ("BNLL", 0, 1000),
                                                         ("ELU", -1, 1000), ("Swish", 0, 1000)])
def test_no_overflow_at_the_ends(layer_type: str, low: float, high: float) -> None:
    rig = Rig(f'type: "{layer_type}"', [np.array([-1000.0, 1000.0])], dtype=np.float32)
    with np.errstate(over="raise", invalid="raise"):
        np.testing.assert_allclose(rig.forward()[0], [low, high])
        gradient = rig.backward([1.0])[0][0]
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(("layer_type", "text", "options"), OPTIONS, ids=lambda v: str(v))
def test_pieces_have_the_bits_of_the_whole_and_short_temporaries(monkeypatch, layer_type, text, options) -> None:
    found, x = [], spread((2 * cpu.PIECE_ELEMS + 77,), -3, 3).astype(np.float32)
    for _ in range(2):
        rig, peak = Rig(f'type: "{layer_type}" {text}', [x], dtype=np.float32), 0
        bottom, top = rig.bottom[0], rig.top[0]
        top.diff_flat[...], bottom.diff_flat[...] = x[::-1], 0
        tracemalloc.start()
        rig.layer.forward([bottom], [top])
        if layer_type != "Threshold":
            rig.layer.backward([top], [True], [bottom])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        found.append((top.data_flat.tobytes(), bottom.diff_flat.tobytes(), peak))
        monkeypatch.setattr(cpu, "PIECE_ELEMS", 1 << 30)
    assert found[0][:2] == found[1][:2]
    assert found[0][2] < 5 * 4 * (1 << 16) + 20_000


def test_prelu_slopes() -> None:
    x = spread((2, 3, 2, 2))
    own = Rig('type: "PReLU" prelu_param { filler { type: "uniform" min: -1 max: 2 } }', [x])
    assert own.layer.blobs[0].shape == (3,)
    np.testing.assert_allclose(own.forward()[0], reference.prelu(x, list(own.layer.blobs[0].data)))
    shared = Rig('type: "PReLU" prelu_param { channel_shared: true }', [x])
    assert shared.layer.blobs[0].shape == ()
    np.testing.assert_allclose(shared.forward()[0], reference.prelu(x, [0.25]))


@pytest.mark.parametrize("text", ['type: "Exp" exp_param { base: 0 }', 'type: "Exp" exp_param { base: -2 }',
                                  'type: "Log" log_param { base: 0 }', 'type: "Log" log_param { base: 1 }',
                                  'type: "PReLU"'])
def test_impossible_parameters(text: str) -> None:
    with pytest.raises(LayerError):
        Rig(text, [spread((3,))])


def test_absval_refuses_in_place() -> None:
    with pytest.raises(LayerError, match="in place"):
        Rig('type: "AbsVal"', [spread((3,))], in_place=True)


def test_threshold_refuses_a_gradient() -> None:
    with pytest.raises(LayerError, match="no gradient"):
        Rig('type: "Threshold"', [spread((3,))]).backward([1.0])
