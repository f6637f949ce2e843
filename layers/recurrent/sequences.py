"""Layers on sequences, of forks: indicators of continuation, reversal in time, accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.bases import NoGradient, refuse_gradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types


@layer_types.register("ContinuationIndicator")
class ContinuationIndicator(NoGradient):
    """0 at the first step of every sequence and 1 at the others; with ``flag`` 1 at all.

    Bottom: none, or (batch_size,) numbers; where one is 1, the sequence goes on from the batch before, so that its
    first step is 1 too. Top: (time_step, batch_size).
    """

    n_bottoms = (0, 1)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.continuation_indicator_param
        if min(p.time_step, p.batch_size) < 1:
            raise LayerError(f"wants time_step and batch_size of at least 1, got {p.time_step} and {p.batch_size}")
        if bottom and bottom[0].n_elems != p.batch_size:
            raise LayerError(f"wants {p.batch_size} numbers, got shape {bottom[0].shape}")
        top[0].reshape((p.time_step, p.batch_size))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].data[...] = 1
        if not self.param.continuation_indicator_param.flag:
            top[0].data[0] = np.abs(bottom[0].data.reshape(-1) - 1) <= 0.01 if bottom else 0


@layer_types.register("ReverseTime")
class ReverseTime(Layer):
    """Step t of a sequence of length L becomes step L - 1 - t; steps from L on stay, or are 0 without copy_remaining.

    (The fork leaves them as they happen to be in memory.)

    Bottoms: sequences (T, N, ...); their lengths (N,). Top: as bottom 0.
    """

    n_bottoms = (2, 2)
    exact_bottoms = (1,)
    host_only = True
    temporaries = 2
    gradient_bottoms = (0,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[0] is top[0]:
            raise LayerError("cannot work in place")
        if bottom[0].ndim < 2 or bottom[1].shape != bottom[0].shape[1:2]:
            raise LayerError(f"wants sequences (T, N, ...) and lengths (N,), got {bottom[0].shape}, {bottom[1].shape}")
        top[0].reshape(bottom[0].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        n_steps = bottom[0].shape[0]
        lengths = bottom[1].data.astype(np.int64)
        if lengths.size and not 0 <= lengths.min() <= lengths.max() <= n_steps:
            raise LayerError(f"lengths lie in 0 to {n_steps}, got {lengths.min()} to {lengths.max()}")
        steps = np.arange(n_steps)[:, None]
        inside = steps < lengths
        self._sources = np.where(inside, lengths - 1 - steps, steps), np.arange(bottom[0].shape[1])
        self._kept = inside | self.param.reverse_time_param.copy_remaining
        self._turn(bottom[0].data, top[0].data)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, [1])
        if propagate_down[0]:
            self._turn(top[0].diff, bottom[0].diff)

    def _turn(self, x: np.ndarray, y: np.ndarray) -> None:
        """Write x in reversed order to y; the reversal is its own inverse."""
        y[...] = x[self._sources] * self._kept.reshape(*self._kept.shape, *[1] * (x.ndim - 2))


@layer_types.register("LabelsequenceAccuracy")
class LabelSequenceAccuracy(NoGradient):
    """The fraction of sequences whose best labels, repetitions merged and blanks left out, are the wanted ones.

    Bottoms: scores (N, T, C); labels (N, L), in which blanks are ignored. Top: the fraction, a scalar.
    """

    n_bottoms = (2, 2)
    host_only = True
    exact_bottoms = (1,)
    exact_tops = (0,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, labels = bottom[0].shape, bottom[1].shape
        if len(x) < 3 or bottom[0].count(3) != 1 or len(labels) < 2 or x[0] != labels[0] or not bottom[0].n_elems:
            raise LayerError(f"wants scores (N, T, C) and labels (N, L), got {x} and {labels}")
        top[0].reshape(())

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        blank = self.param.labelsequence_accuracy_param.blank_label
        best = bottom[0].data.reshape(bottom[0].shape[:3]).argmax(axis=2)
        n_right = 0
        for found, wanted in zip(best, bottom[1].data.reshape(len(best), -1), strict=True):
            changes = np.concatenate([[True], found[1:] != found[:-1]])
            read = found[changes & (found != blank)]
            n_right += np.array_equal(read, wanted[wanted != blank].astype(np.int64))
        top[0].data[...] = n_right / len(best)
