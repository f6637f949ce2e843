"""Layers as a user of Caffe's Python interface would write them, for the tests of type "Python"."""

from __future__ import annotations

import os
import sys

import numpy as np

from scaffe.layers.python import UserLayer


class Half(UserLayer):
    """Half the squared distance of two bottoms, per item."""

    def setup(self, bottom, top):
        """Two bottoms only."""
        if len(bottom) != 2:
            raise RuntimeError("need two inputs")

    def reshape(self, bottom, top):
        """A scalar, and room for the difference."""
        self.difference = np.zeros_like(bottom[0].data)
        top[0].reshape(1)

    def forward(self, bottom, top):
        """The loss."""
        self.difference[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.difference**2) / bottom[0].num / 2.0

    def backward(self, top, propagate_down, bottom):
        """Its gradient."""
        for i, sign in enumerate((1, -1)):
            if propagate_down[i]:
                bottom[i].diff[...] = sign * top[0].diff[0] * self.difference / bottom[i].num


class Scale(UserLayer):
    """x times a parameter per channel, which begins at param_str."""

    def setup(self, bottom, top):
        """Declare the parameter."""
        self.blobs.add_blob(bottom[0].channels)
        self.blobs[0].data[...] = float(self.param_str)

    def reshape(self, bottom, top):
        """As the bottom."""
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        """Multiply."""
        top[0].data[...] = bottom[0].data * self.blobs[0].data[:, None, None]

    def backward(self, top, propagate_down, bottom):
        """Both gradients."""
        self.blobs[0].diff[...] += np.sum(top[0].diff * bottom[0].data, axis=(0, 2, 3))
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff * self.blobs[0].data[:, None, None]


class Choose(UserLayer):
    """As py-faster-rcnn's: its parameter under the old name, its phase as text, a backward that does nothing."""

    def setup(self, bottom, top):
        """Read both."""
        self.said = self.param_str_, str(self.phase)

    def reshape(self, bottom, top):
        """In forward."""

    def forward(self, bottom, top):
        """The rows with a positive sum."""
        chosen = bottom[0].data[bottom[0].data.reshape(bottom[0].num, -1).sum(axis=1) > 0]
        top[0].reshape(*chosen.shape)
        top[0].data[...] = chosen

    def backward(self, top, propagate_down, bottom):
        """No gradient."""


class Source(UserLayer):
    """Brings in data."""

    def reshape(self, bottom, top):
        """Two rows."""
        top[0].reshape(2, 3)

    def forward(self, bottom, top):
        """Ones."""
        top[0].data[...] = 1


class Forks(Source):
    """Its child exits."""

    def forward(self, bottom, top):
        """The child is caught by who runs the layer."""
        child = os.fork()
        if child == 0:
            sys.exit(3)
        self.status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
