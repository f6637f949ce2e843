"""A layer that lets a run be slow in its first lives, so that a test meets it before its end, and fast in its last."""

import os
import time

import scaffe as caffe

FAST_ITERATIONS, SLOW_SECONDS = 20, 0.1


class Pace(caffe.Layer):
    """Hands its bottom through; from iteration 20 of a life on it naps, but for the last life (PACE_LIVES)."""

    def setup(self, bottom, top):
        self._is_slow = int(os.environ.get("SLURM_RESTART_COUNT", "0")) < int(os.environ["PACE_LIVES"]) - 1
        self._n_passes = 0

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data
        self._n_passes += 1
        if self._is_slow and self._n_passes > FAST_ITERATIONS:
            time.sleep(SLOW_SECONDS)

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff
