"""RNN and LSTM against loops, the states they carry, and Caffe's order of blobs and draws."""

from __future__ import annotations

import numpy as np
import pytest

from scaffe.errors import LayerError
from tests.layers.rig import SEED, Rig, spread
from tests.reference import fillers, recurrent

X, CONT = spread((3, 2, 4), seed=1), np.array([[0, 1], [1, 1], [1, 0.0]])
FILLERS = 'weight_filler { type: "uniform" min: -1 } bias_filler { type: "uniform" }'
ZEROS = np.zeros((2, 3))


def rig(layer_type: str, *more: np.ndarray, options: str = "", n_tops: int = 1, **keywords) -> Rig:
    """A layer of 3 outputs."""
    text = f'type: "{layer_type}" recurrent_param {{ num_output: 3 {FILLERS} {options} }}'
    return Rig(text, [X, CONT, *more], n_tops=n_tops, **keywords)


def blobs(bench: Rig) -> list[np.ndarray]:
    """The layer's parameters."""
    return [b.data for b in bench.layer.blobs]


def test_rnn_and_the_state_it_carries() -> None:
    bench = rig("RNN")
    assert [b.shape for b in bench.layer.blobs] == [(3, 4), (3,), (3, 3), (3, 3), (3,)]
    expected, last = recurrent.rnn(X, CONT, blobs(bench), ZEROS)
    np.testing.assert_allclose(bench.forward()[0], expected)
    again, _ = recurrent.rnn(X, CONT, blobs(bench), last)
    np.testing.assert_allclose(bench.forward()[0], again)
    assert abs(again - expected).max() > 1e-3


def test_lstm_and_the_states_it_carries() -> None:
    bench = rig("LSTM")
    assert [b.shape for b in bench.layer.blobs] == [(12, 4), (12,), (12, 3)]
    expected, h, c = recurrent.lstm(X, CONT, blobs(bench), ZEROS, ZEROS)
    np.testing.assert_allclose(bench.forward()[0], expected)
    again, _, _ = recurrent.lstm(X, CONT, blobs(bench), h, c)
    np.testing.assert_allclose(bench.forward()[0], again)


def test_exposed_states() -> None:
    h0, c0 = spread((1, 2, 3), seed=5), spread((1, 2, 3), seed=6)
    bench = rig("LSTM", h0, c0, options="expose_hidden: true", n_tops=3)
    for _ in range(2):
        for got, expected in zip(bench.forward(), recurrent.lstm(X, CONT, blobs(bench), h0[0], c0[0]), strict=True):
            np.testing.assert_allclose(got.reshape(expected.shape), expected)
    plain = rig("RNN", h0, options="expose_hidden: true", n_tops=2)
    for got, expected in zip(plain.forward(), recurrent.rnn(X, CONT, blobs(plain), h0[0]), strict=True):
        np.testing.assert_allclose(got.reshape(expected.shape), expected)
    assert not bench.backward([1.0, 1.0, 1.0], [True, False, True, True])[0][2].any()


@pytest.mark.parametrize("layer_type", ["RNN", "LSTM"])
def test_static_input_is_like_constant_columns_of_x(layer_type: str) -> None:
    static = spread((2, 2), seed=7)
    bench = rig(layer_type, static)
    w_x, b, w_static, *step = blobs(bench)
    wide = np.concatenate([X, np.broadcast_to(static, (3, 2, 2))], axis=2)
    reference = {"RNN": recurrent.rnn, "LSTM": recurrent.lstm}[layer_type]
    states = [ZEROS] * (1 if layer_type == "RNN" else 2)
    expected = reference(wide, CONT, [np.concatenate([w_x, w_static], axis=1), b, *step], *states)
    np.testing.assert_allclose(bench.forward()[0], expected[0])


def test_draws_are_caffes() -> None:
    """x's weights, its bias, then for each of the 3 steps its own weights, of which the first count."""
    bench = rig("RNN", dtype=np.float32)
    raw = fillers.uniform(SEED, (12,), -1, 1)
    np.testing.assert_array_equal(bench.layer.blobs[0].data.ravel(), raw)
    follower = bench.context.rng.draw(1)[0]
    assert follower == fillers.draws(SEED, 12 + 3 + 3 * (9 + 9 + 3) + 1)[-1]


def test_lstm_unit() -> None:
    cells, gates, cont = spread((1, 2, 1), seed=1), spread((1, 2, 4), -2, 2, seed=2), np.array([[1, 0.0]])
    c, h = Rig('type: "LSTMUnit"', [cells, gates, cont]).forward()
    for n in range(2):
        i, f, o = (recurrent.sigmoid(v) for v in gates[0, n, :3])
        after = cont[0, n] * f * cells[0, n, 0] + i * np.tanh(gates[0, n, 3])
        assert c[0, n, 0] == pytest.approx(after)
        assert h[0, n, 0] == pytest.approx(o * np.tanh(after))


def test_streams_may_change_but_not_steps() -> None:
    bench = rig("LSTM")
    assert bench.feed(np.zeros((3, 5, 4)), np.zeros((3, 5)))[0].shape == (3, 5, 3)
    with pytest.raises(LayerError, match="3 steps"):
        bench.feed(np.zeros((4, 5, 4)), np.zeros((4, 5)))


def test_errors() -> None:
    with pytest.raises(LayerError, match="num_output"):
        Rig('type: "RNN"', [X, CONT])
    with pytest.raises(LayerError, match="streams"):
        Rig('type: "RNN" recurrent_param { num_output: 2 }', [X, CONT[:2]])
    with pytest.raises(LayerError, match="static"):
        rig("RNN", np.zeros((3, 2)))
    with pytest.raises(LayerError, match="takes 4 bottoms"):
        rig("LSTM", options="expose_hidden: true", n_tops=3)
    with pytest.raises(LayerError, match="states of shape"):
        rig("RNN", np.zeros((1, 2, 4)), options="expose_hidden: true", n_tops=2)
    with pytest.raises(LayerError, match="no gradient"):
        rig("RNN").backward([1.0], [True, True])
    with pytest.raises(LayerError, match="4 D"):
        Rig('type: "LSTMUnit"', [np.zeros((1, 2, 3)), np.zeros((1, 2, 3)), np.zeros((1, 2))])
