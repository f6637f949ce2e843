"""The base of RNN and LSTM. Caffe 1.0 unrolls them into a net of one layer a step; here the steps run in a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_n_axes
from scaffe.layers.base.bases import clear_wanted, refuse_gradient
from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.fillers import fill
from scaffe.layers.base.layer import Layer

Arrays = list[np.ndarray]


class Recurrent(Layer):
    """T steps of N independent sequences.

    Bottoms: x (T, N, ...); cont (T, N), 0 where a sequence begins, else 1; optionally a static input (N, ...); with
    expose_hidden the initial states, each (1, N, num_output). Tops: the outputs (T, N, num_output); with
    expose_hidden the final states. Without expose_hidden, each forward starts from the final states of the one before.
    No gradient flows through states from one forward to another.

    A subclass sets the number of its states and gates, and implements ``step_params``, ``run`` and ``run_back``.
    """

    n_states: ClassVar[int]
    n_gates: ClassVar[int]

    def check_counts(self, n_bottoms: int, n_tops: int) -> None:
        exposed = self._n_exposed()
        if n_bottoms not in (2 + exposed, 3 + exposed) or n_tops != 1 + exposed:
            raise LayerError(f"takes {2 + exposed} bottoms, one more with a static input, and {1 + exposed} top(s); "
                             f"got {n_bottoms} and {n_tops}")

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Declare the parameters: weights and bias of x, weights of the static input, then those of ``step_params``."""
        p = self.param.recurrent_param
        if p.num_output < 1:
            raise LayerError(f"recurrent_param.num_output must be at least 1, got {p.num_output}")
        check_n_axes(2, bottom[0])
        self.n_output, self.n_steps = p.num_output, bottom[0].shape[0]
        self.has_static = len(bottom) > 2 + self._n_exposed()
        self._check_inputs(bottom)
        rows = self.n_gates * self.n_output
        self.add_blob((rows, bottom[0].count(2)), p.weight_filler)
        self.add_blob((rows,), p.bias_filler)
        if self.has_static:
            self.add_blob((rows, bottom[2].count(1)), p.weight_filler)
        step = self.step_params()
        self.first_of_step = len(self.blobs)
        for shape, filler in step:
            self.add_blob(shape, filler)
        for shape, filler in step * (self.n_steps - 1):  # Caffe fills every step's copy before it shares them
            fill(np.empty(shape, self.context.dtype), filler, self.context.rng)
        self._states: Arrays = []

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._check_inputs(bottom)
        for blob, weights, start in ((bottom[0], 0, 2), *((blob, 2, 1) for blob in bottom[2:3] if self.has_static)):
            if blob.count(start) != self.blobs[weights].shape[1]:
                raise LayerError(f"has weights for {self.blobs[weights].shape[1]} inputs, got shape {blob.shape}")
        n_streams = bottom[0].shape[1]
        state = 1, n_streams, self.n_output
        for blob in bottom[2 + self.has_static :]:
            if blob.shape != state:
                raise LayerError(f"wants states of shape {state}, got {blob.shape}")
        top[0].reshape((self.n_steps, n_streams, self.n_output))
        for blob in top[1:]:
            blob.reshape(state)
        if not self._states or self._states[0].shape != state[1:]:
            self._states = [np.zeros_like(bottom[0].data, shape=state[1:]) for _ in range(self.n_states)]

    def allow_force_backward(self, bottom_index: int) -> bool:
        """True for x and the static input, which alone have a gradient."""
        return bottom_index == 0 or (bottom_index == 2 and len(self.param.bottom) > 2 + self._n_exposed())

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        inputs = self._rows(bottom[0].data) @ self.blobs[0].data.T + self.blobs[1].data
        inputs = inputs.reshape(self.n_steps, -1, inputs.shape[-1])
        if self.has_static:
            inputs += bottom[2].data.reshape(inputs.shape[1], -1) @ self.blobs[2].data.T
        states = [blob.data[0] for blob in bottom[2 + self.has_static :]] or self._states
        self._cont = bottom[1].data[:, :, None].copy()
        top[0].data[...], self._states = self.run(inputs, self._cont, states)
        for blob, state in zip(top[1:], self._states, strict=False):
            blob.data[0] = state

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Back-propagate through all steps; the gradient of exposed initial states is zero."""
        refuse_gradient(propagate_down, [1])
        gradients = self.run_back(top[0].diff, self._cont)
        rows, x = self._rows(gradients), self._rows(bottom[0].data)
        self.accumulate(0, rows.T @ x)
        self.accumulate(1, rows.sum(axis=0))
        if propagate_down[0]:
            bottom[0].diff[...] = (rows @ self.blobs[0].data).reshape(bottom[0].shape)
        if self.has_static:
            summed = gradients.sum(axis=0)
            self.accumulate(2, summed.T @ bottom[2].data.reshape(len(summed), -1))
            if propagate_down[2]:
                bottom[2].diff[...] = (summed @ self.blobs[2].data).reshape(bottom[2].shape)
        clear_wanted(bottom[2 + self.has_static :], propagate_down[2 + self.has_static :])

    # -- for subclasses ------------------------------------------------------------------------------------
    def step_params(self) -> list[tuple[Shape, Any]]:
        """(shape, FillerParameter message) of each parameter that a step uses, in Caffe's order."""
        raise NotImplementedError

    def run(self, inputs: np.ndarray, cont: np.ndarray, states: Arrays) -> tuple[np.ndarray, Arrays]:
        """All steps: outputs (T, N, num_output) and the final states, from ``inputs`` (T, N, n_gates num_output), which
        are x and the static input times their weights, with the bias; ``cont`` (T, N, 1); and initial states (N,
        num_output)."""
        raise NotImplementedError

    def run_back(self, gy: np.ndarray, cont: np.ndarray) -> np.ndarray:
        """All steps backward: the gradient of ``inputs`` from that of the outputs, both shaped as in ``run``. Adds to
        the diffs of the parameters of ``step_params``."""
        raise NotImplementedError

    def accumulate(self, index: int, gradient: np.ndarray) -> None:
        """Add to the diff of parameter ``index``, if its gradient is wanted."""
        if self.param_propagate_down[index]:
            self.blobs[index].diff[...] += gradient

    # -- parts ---------------------------------------------------------------------------------------------
    def _n_exposed(self) -> int:
        return self.n_states if self.param.recurrent_param.expose_hidden else 0

    def _rows(self, array: np.ndarray) -> np.ndarray:
        """(T * N, rest)."""
        return array.reshape(array.shape[0] * array.shape[1], -1)

    def _check_inputs(self, bottom: Sequence[Blob]) -> None:
        x, cont = bottom[0].shape, bottom[1].shape
        if len(x) < 2 or cont != x[:2]:
            raise LayerError(f"wants bottoms (steps, streams, ...) and (steps, streams), got shapes {x} and {cont}")
        if not x[0] or not x[1]:
            raise LayerError(f"needs at least one step and one stream, got shape {x}")
        if x[0] != self.n_steps:
            raise LayerError(f"was set up for {self.n_steps} steps, got shape {x}")
        if self.has_static and bottom[2].shape[:1] != x[1:2]:
            raise LayerError(f"wants a static input of {x[1]} streams, got shape {bottom[2].shape}")
