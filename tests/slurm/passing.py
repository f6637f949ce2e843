"""The layers of these tests hand their bottom through; what else they do, they do after each forward pass."""

import scaffe as caffe


class Passing(caffe.Layer):
    """Calls ``passed`` with the number of forward passes done."""

    def setup(self, bottom, top):
        self._n_passes = 0

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data
        self._n_passes += 1
        self.passed(self._n_passes)

    def passed(self, n_passes):
        raise NotImplementedError

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff
