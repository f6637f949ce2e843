"""Recurrent networks over sequences: LSTM, LSTMUnit and RNN (Caffe 1.0; Hochreiter and Schmidhuber 1997, without
peepholes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.activation.activations import sigmoid
from scaffe.layers.base.bases import refuse_gradient
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.base.recurrent import Arrays, Recurrent


class Step(NamedTuple):
    """What the backward of one step needs, all (N, D): the gates after sigmoid or tanh (f not multiplied by cont), the
    cells c before the step, and tanh of those after it."""

    i: np.ndarray
    f: np.ndarray
    o: np.ndarray
    g: np.ndarray
    before: np.ndarray
    squashed: np.ndarray


def step_forward(cells: np.ndarray, gates: np.ndarray, cont: np.ndarray) -> tuple[np.ndarray, np.ndarray, Step]:
    """One step, c = cont f c_before + i g, then h = o tanh(c), for cells c_before (N, D), gates (N, 4 D), which are i,
    f, o before the sigmoid, then g before tanh, and cont (N, 1). Returns c, h and what ``step_backward`` needs."""
    n = cells.shape[-1]
    i, f, o = (sigmoid(gates[:, k * n : (k + 1) * n]) for k in range(3))
    g = np.tanh(gates[:, 3 * n :])
    after = cont * f * cells + i * g
    squashed = np.tanh(after)
    return after, o * squashed, Step(i, f, o, g, cells, squashed)


def step_backward(gc: np.ndarray, gh: np.ndarray, cont: np.ndarray, step: Step, out: np.ndarray) -> np.ndarray:
    """Backward of one step: writes the gradient of the gates before sigmoid and tanh to ``out``, (N, 4 D), and returns
    that of c before the step, (N, D), from those of c, without what comes through h, and of h after it."""
    n = gc.shape[-1]
    gc = gc + gh * step.o * (1 - np.square(step.squashed))
    out[:, :n] = gc * step.g * step.i * (1 - step.i)
    out[:, n : 2 * n] = gc * step.before * cont * step.f * (1 - step.f)
    out[:, 2 * n : 3 * n] = gh * step.squashed * step.o * (1 - step.o)
    out[:, 3 * n :] = gc * step.i * (1 - np.square(step.g))
    before: np.ndarray = gc * cont * step.f
    return before


@layer_types.register("LSTM")
class Lstm(Recurrent):
    """For each step t: gates = W_hc (cont_t h_{t-1}) + W_xc x_t + b_c, then ``step_forward``; the output is h_t.

    Bottoms and tops: see ``Recurrent``. The states are h and c.
    Blobs: W_xc (4 D, inputs); b_c (4 D,); with a static input W_xc_static (4 D, inputs); W_hc (4 D, D). The rows are
    those of i, f, o and g, D each.
    """

    n_states = 2
    n_gates = 4
    temporaries, persistent_temporaries = 15, 7

    def step_params(self) -> list[tuple[Shape, Any]]:
        """Shape and filler of W_hc."""
        return [((4 * self.n_output, self.n_output), self.param.recurrent_param.weight_filler)]

    def run(self, inputs: np.ndarray, cont: np.ndarray, states: Arrays) -> tuple[np.ndarray, Arrays]:
        weights = self.blobs[self.first_of_step].data
        hidden, cells = states
        self._steps: list[Step] = []
        self._before = np.empty_like(inputs, shape=(*inputs.shape[:2], self.n_output))
        outputs = np.empty_like(self._before)
        for t, step in enumerate(inputs):
            np.multiply(hidden, cont[t], out=self._before[t])
            cells, hidden, kept = step_forward(cells, self._before[t] @ weights.T + step, cont[t])
            self._steps.append(kept)
            outputs[t] = hidden
        return outputs, [hidden, cells]

    def run_back(self, gy: np.ndarray, cont: np.ndarray) -> np.ndarray:
        weights = self.blobs[self.first_of_step].data
        gradients = np.empty_like(gy, shape=(*gy.shape[:2], 4 * self.n_output))
        gh, gc = np.zeros_like(gy[0]), np.zeros_like(gy[0])
        for t in range(self.n_steps - 1, -1, -1):
            gc = step_backward(gc, gh + gy[t], cont[t], self._steps[t], gradients[t])
            gh = (gradients[t] @ weights) * cont[t]
        self.accumulate(self.first_of_step, np.tensordot(gradients, self._before, ([0, 1], [0, 1])))
        return gradients


@layer_types.register("LSTMUnit")
class LstmUnit(Layer):
    """One step of an LSTM, ``step_forward``.

    Bottoms: c before the step, (1, N, D); gates, (1, N, 4 D); cont, (1, N). Tops: c and h after it, both (1, N, D).
    """

    n_bottoms = (3, 3)
    n_tops = (2, 2)
    temporaries, persistent_temporaries = 4, 2
    gradient_bottoms = (0, 1)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        cells, gates, cont = (b.shape for b in bottom)
        if len(cells) != 3 or cells[0] != 1 or gates != (*cells[:2], 4 * cells[2]) or cont != cells[:2]:
            raise LayerError(f"wants bottoms (1, N, D), (1, N, 4 D) and (1, N), got shapes {cells}, {gates}, {cont}")
        for blob in top:
            blob.reshape(cells)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        cells, gates, cont = (b.data[0] for b in bottom)
        top[0].data[0], top[1].data[0], self._step = step_forward(cells, gates, cont[:, None])

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, [2])
        gates = np.empty_like(bottom[1].data[0])
        cells = step_backward(top[0].diff[0], top[1].diff[0], bottom[2].data[0][:, None], self._step, gates)
        for blob, gradient, wanted in zip(bottom, (cells, gates), propagate_down, strict=False):
            if wanted:
                blob.diff[0] = gradient


@layer_types.register("RNN")
class Rnn(Recurrent):
    """For each step t: h_t = tanh(W_hh (cont_t h_{t-1}) + W_xh x_t + b_h); the output is tanh(W_ho h_t + b_o).

    Bottoms and tops: see ``Recurrent``; cont_t is 0 where a sequence begins. The state is h; D = num_output.
    Blobs: W_xh (D, inputs); b_h (D,); with a static input W_xh_static (D, inputs); W_hh, W_ho (D, D); b_o (D,).
    """

    n_states = 1
    n_gates = 1
    temporaries, persistent_temporaries = 6, 3

    def step_params(self) -> list[tuple[Shape, Any]]:
        """Shapes and fillers of W_hh, W_ho and b_o."""
        p, n = self.param.recurrent_param, self.n_output
        return [((n, n), p.weight_filler), ((n, n), p.weight_filler), ((n,), p.bias_filler)]

    def run(self, inputs: np.ndarray, cont: np.ndarray, states: Arrays) -> tuple[np.ndarray, Arrays]:
        w_hh, w_ho, b_o = (blob.data for blob in self.blobs[self.first_of_step :])
        self._before, self._hidden = np.empty_like(inputs), np.empty_like(inputs)
        hidden = states[0]
        for t, step in enumerate(inputs):
            np.multiply(hidden, cont[t], out=self._before[t])
            hidden = np.tanh(self._before[t] @ w_hh.T + step, out=self._hidden[t])
        self._output = np.tanh(self._hidden @ w_ho.T + b_o)
        return self._output, [hidden.copy()]

    def run_back(self, gy: np.ndarray, cont: np.ndarray) -> np.ndarray:
        first = self.first_of_step
        w_hh, w_ho = (blob.data for blob in self.blobs[first : first + 2])
        outer = gy * (1 - np.square(self._output))
        from_output = outer @ w_ho
        gradients, later = np.empty_like(self._hidden), np.zeros_like(gy[0])
        for t in range(self.n_steps - 1, -1, -1):
            np.multiply(from_output[t] + later, 1 - np.square(self._hidden[t]), out=gradients[t])
            later = (gradients[t] @ w_hh) * cont[t]
        self.accumulate(first, np.tensordot(gradients, self._before, ([0, 1], [0, 1])))
        self.accumulate(first + 1, np.tensordot(outer, self._hidden, ([0, 1], [0, 1])))
        self.accumulate(first + 2, outer.sum(axis=(0, 1)))
        return gradients
