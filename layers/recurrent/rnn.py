"""RNN: the simple recurrent network (Caffe 1.0)."""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.layers.base.blob import Shape
from scaffe.layers.base.layer import layer_types
from scaffe.layers.base.recurrent import Arrays, Recurrent


@layer_types.register("RNN")
class Rnn(Recurrent):
    """For each step t: h_t = tanh(W_hh (cont_t h_{t-1}) + W_xh x_t + b_h); the output is tanh(W_ho h_t + b_o).

    Bottoms and tops: see ``Recurrent``; cont_t is 0 where a sequence begins. The state is h; D = num_output.
    Blobs: W_xh (D, inputs); b_h (D,); with a static input W_xh_static (D, inputs); W_hh, W_ho (D, D); b_o (D,).
    """

    n_states = 1
    n_gates = 1
    temporaries, lasting = 6, 3

    def step_params(self) -> list[tuple[Shape, Any]]:
        """Shapes and fillers of W_hh, W_ho and b_o."""
        p, n = self.param.recurrent_param, self.n_output
        return [((n, n), p.weight_filler), ((n, n), p.weight_filler), ((n,), p.bias_filler)]

    def run(self, inputs: np.ndarray, cont: np.ndarray, states: Arrays) -> tuple[np.ndarray, Arrays]:
        """Run all steps forward; see ``Recurrent.run``."""
        w_hh, w_ho, b_o = (blob.data for blob in self.blobs[self.first_of_step :])
        self._before, self._hidden = np.empty_like(inputs), np.empty_like(inputs)
        hidden = states[0]
        for t, step in enumerate(inputs):
            np.multiply(hidden, cont[t], out=self._before[t])
            hidden = np.tanh(self._before[t] @ w_hh.T + step, out=self._hidden[t])
        self._output = np.tanh(self._hidden @ w_ho.T + b_o)
        return self._output, [hidden.copy()]

    def run_back(self, gy: np.ndarray, cont: np.ndarray) -> np.ndarray:
        """Run all steps backward; see ``Recurrent.run_back``."""
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
