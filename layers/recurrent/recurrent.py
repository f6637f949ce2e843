"""Recurrent networks over sequences: LSTM, LSTMUnit and RNN (Caffe 1.0; Hochreiter and Schmidhuber 1997, without
peepholes), and Lstm (junhyukoh/caffe-lstm; CTPN and caffe_ocr, lstm_layer.cpp)."""

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


def lstm_forward(inputs: np.ndarray, cont: np.ndarray, states: Sequence[np.ndarray], weights: np.ndarray,
                 steps: list[Step]) -> tuple[np.ndarray, np.ndarray, Arrays]:
    """All steps, from gates (T, N, 4 D) without the states' part, cont (T, N, 1), h and c (N, D), and weights (4 D, D).

    Returns the hidden states h before, times cont, and after each step, (T, N, D), and the final h and c.
    """
    hidden, cells = states
    before = np.empty_like(inputs, shape=(*inputs.shape[:2], weights.shape[1]))
    outputs = np.empty_like(before)
    for t, step in enumerate(inputs):
        np.multiply(hidden, cont[t], out=before[t])
        cells, hidden, kept = step_forward(cells, before[t] @ weights.T + step, cont[t])
        steps.append(kept)
        outputs[t] = hidden
    return before, outputs, [hidden, cells]


def lstm_backward(gy: np.ndarray, cont: np.ndarray, steps: Sequence[Step], weights: np.ndarray,
                  bound: float = 0) -> np.ndarray:
    """All steps backward: the gradient of the gates, (T, N, 4 D), clipped to ``bound`` if that is above 0, from that of
    the outputs."""
    gates = np.empty_like(gy, shape=(*gy.shape[:2], 4 * gy.shape[2]))
    gh, gc = np.zeros_like(gy[0]), np.zeros_like(gy[0])
    for t in range(len(gy) - 1, -1, -1):
        gc = step_backward(gc, gh + gy[t], cont[t], steps[t], gates[t])
        if bound > 0:
            np.clip(gates[t], -bound, bound, out=gates[t])
        gh = (gates[t] @ weights) * cont[t]
    return gates


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
        self._steps: list[Step] = []
        self._before, outputs, final = lstm_forward(inputs, cont, states, self.blobs[self.first_of_step].data,
                                                    self._steps)
        return outputs, final

    def run_back(self, gy: np.ndarray, cont: np.ndarray) -> np.ndarray:
        gradients = lstm_backward(gy, cont, self._steps, self.blobs[self.first_of_step].data)
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


@layer_types.register("Lstm")
class LstmOfForks(Layer):
    """For each step t: gates = W_x x_t + W_h cont_t h_{t-1} + b, then ``step_forward`` of recurrent.py.

    Without bottom 1 each sequence begins at the first step, with states of 0. With it, cont is 0 where a sequence
    begins, and a forward starts from the states that the one before ended with. ``clipping_threshold`` above 0 bounds
    the gradients of the gates, before their sigmoid and tanh.

    Bottoms: x, (T, N, inputs) as in CTPN's and caffe_ocr's forks, or with ``batch_size`` N (1 for all but three axes)
    (T N, ...) as in caffe-lstm, step after step; optionally cont, T N numbers, step after step. (The fork takes
    number t + n for sequence n at step t, which is right for one sequence alone.)
    Top: h_t, (T, N, num_output), or (T N, num_output).
    Blobs: W_x (4 num_output, inputs); W_h (4 num_output, num_output); b (4 num_output,); rows of i, f, o and g.
    """

    n_bottoms = (1, 2)
    exact_bottoms = (1,)
    temporaries, persistent_temporaries = 15, 7
    gradient_bottoms = (0,)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p, x = self.param.lstm_param, bottom[0]
        if p.num_output < 1 or p.batch_size < 1:
            raise LayerError(f"wants num_output and batch_size of at least 1, got {p.num_output} and {p.batch_size}")
        self._by_steps = x.ndim == 3 and not p.HasField("batch_size")
        if x.ndim < 2:
            raise LayerError(f"takes (T, N, inputs) or (T N, ...), got shape {x.shape}")
        self._n_inputs = x.count(2 if self._by_steps else 1)
        n_gates = 4 * p.num_output
        self.add_blob((n_gates, self._n_inputs), p.weight_filler)
        self.add_blob((n_gates, p.num_output), p.weight_filler)
        self.add_blob((n_gates,), p.bias_filler)
        self._states: Arrays | None = None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, p = bottom[0], self.param.lstm_param
        n_items = x.shape[1] if self._by_steps and x.ndim == 3 else p.batch_size
        leading = 2 if self._by_steps else 1
        if x.count(leading) != self._n_inputs or x.count(0, leading) % max(n_items, 1) or not x.n_elems:
            raise LayerError(f"has weights for {self._n_inputs} inputs and {n_items} sequence(s), "
                             f"got a bottom of shape {x.shape}")
        self._n_steps, self._n_items = x.count(0, leading) // n_items, n_items
        if len(bottom) > 1 and bottom[1].n_elems != self._n_steps * n_items:
            raise LayerError(f"wants {self._n_steps * n_items} continuation indicators, got shape {bottom[1].shape}")
        top[0].reshape((*x.shape[:leading], p.num_output))
        if self._states is not None and self._states[0].shape[0] != n_items:
            self._states = None

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        w_x, w_h, bias = (blob.data for blob in self.blobs)
        x = bottom[0].data.reshape(self._n_steps * self._n_items, self._n_inputs)
        inputs = (x @ w_x.T + bias).reshape(self._n_steps, self._n_items, -1)
        self._cont = self._continuations(bottom, inputs)
        states = self._states if len(bottom) > 1 and self._states is not None else [
            np.zeros_like(inputs, shape=(self._n_items, w_h.shape[1])) for _ in range(2)]
        self._steps: list[Step] = []
        self._before, outputs, self._states = lstm_forward(inputs, self._cont, states, w_h, self._steps)
        top[0].data[...] = outputs.reshape(top[0].shape)

    def _continuations(self, bottom: Sequence[Blob], like: np.ndarray) -> np.ndarray:
        """1 where a step goes on from the one before, else 0, (T, N, 1)."""
        if len(bottom) > 1:
            given = bottom[1].data.reshape(self._n_steps, self._n_items, 1)
            flags: np.ndarray = (given != 0).astype(like.dtype)
            return flags
        flags = np.ones_like(like, shape=(self._n_steps, self._n_items, 1))
        flags[0] = 0
        return flags

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, [1])
        gates = lstm_backward(top[0].diff.reshape(self._before.shape), self._cont, self._steps, self.blobs[1].data,
                              self.param.lstm_param.clipping_threshold)
        flat = gates.reshape(self._n_steps * self._n_items, -1)
        x = bottom[0].data.reshape(len(flat), -1)
        found = (flat.T @ x, np.tensordot(gates, self._before, ([0, 1], [0, 1])), flat.sum(0))
        for blob, wanted, gradient in zip(self.blobs, self.param_propagate_down, found, strict=True):
            if wanted:
                blob.diff[...] += gradient
        if propagate_down[0]:
            bottom[0].diff[...] = (flat @ self.blobs[0].data).reshape(bottom[0].shape)
