"""Lstm: an LSTM over batches of sequences (caffe-lstm, junhyukoh/caffe-lstm; CTPN and caffe_ocr, lstm_layer.cpp)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import refuse_gradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.recurrent.recurrent import Step, step_backward, step_forward


@layer_types.register("Lstm")
class Lstm(Layer):
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
        self._states: tuple[np.ndarray, np.ndarray] | None = None

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
        hidden, cells = self._first_states(bottom, inputs)
        self._steps: list[Step] = []
        self._before = np.empty_like(inputs, shape=(self._n_steps, self._n_items, self.param.lstm_param.num_output))
        outputs = np.empty_like(self._before)
        for t in range(self._n_steps):
            np.multiply(hidden, self._cont[t], out=self._before[t])
            cells, hidden, kept = step_forward(cells, inputs[t] + self._before[t] @ w_h.T, self._cont[t])
            self._steps.append(kept)
            outputs[t] = hidden
        self._states = (hidden, cells)
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

    def _first_states(self, bottom: Sequence[Blob], like: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """h and c before the first step, (N, num_output)."""
        if len(bottom) > 1 and self._states is not None:
            return self._states
        shape = (self._n_items, self.param.lstm_param.num_output)
        return np.zeros_like(like, shape=shape), np.zeros_like(like, shape=shape)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, [1])
        gates = self._gate_gradients(top[0].diff.reshape(self._before.shape))
        flat = gates.reshape(self._n_steps * self._n_items, -1)
        x = bottom[0].data.reshape(len(flat), -1)
        found = (flat.T @ x, np.tensordot(gates, self._before, ([0, 1], [0, 1])), flat.sum(0))
        for blob, wanted, gradient in zip(self.blobs, self.param_propagate_down, found, strict=True):
            if wanted:
                blob.diff[...] += gradient
        if propagate_down[0]:
            bottom[0].diff[...] = (flat @ self.blobs[0].data).reshape(bottom[0].shape)

    def _gate_gradients(self, gy: np.ndarray) -> np.ndarray:
        """The gradient of the gates before sigmoid and tanh, (T, N, 4 num_output), from that of the outputs."""
        bound, w_h = self.param.lstm_param.clipping_threshold, self.blobs[1].data
        gates = np.empty_like(gy, shape=(*gy.shape[:2], 4 * gy.shape[2]))
        gh, gc = np.zeros_like(gy[0]), np.zeros_like(gy[0])
        for t in range(self._n_steps - 1, -1, -1):
            gc = step_backward(gc, gh + gy[t], self._cont[t], self._steps[t], gates[t])
            if bound > 0:
                np.clip(gates[t], -bound, bound, out=gates[t])
            gh = (gates[t] @ w_h) * self._cont[t]
        return gates
