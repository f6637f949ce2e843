"""MarginInnerProduct: the angular margin of SphereFace (A-Softmax; Liu et al., CVPR 2017; wy1iu/sphereface)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis, read_labels
from scaffe.layers.base.bases import refuse_gradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types

POLYNOMIALS = ((1, 0), (2, 0, -1), (4, 0, -3, 0), (8, 0, -8, 0, 1))  # cos(m t) by powers of cos(t), m = 1 to 4


@layer_types.register("MarginInnerProduct")
class MarginInnerProduct(Layer):
    """Inner products with rows of length 1; the true class's is made smaller by a margin.

    With t the angle between x and its class's row, that product is |x| (psi(t) + lambda cos t) / (1 + lambda), where
    psi(t) = (-1)^k cos(m t) - 2 k between k pi / m and (k + 1) pi / m; m is 1 to 4, by ``type``. lambda is
    max(base / (1 + gamma i)^power, lambda_min); i begins at ``iteration`` and grows by 1 at each pass.

    As in the fork, rows are scaled to length 1 where they lie, before each pass; their gradient is that of a plain
    inner product; the gradient of x through psi is scaled to factors of root-sum-square 1 on the row and on x. So the
    gradients of m > 1 are not the derivative.

    Bottoms: features (N, ...); a label an item. Tops: (N, num_output); optionally lambda, (1,). Blob: the rows,
    (num_output, features).
    """

    n_bottoms = (2, 2)
    n_tops = (1, 2)
    host_only = writes_params = True
    exact_bottoms = (1,)
    temporaries = 1

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.margin_inner_product_param
        if p.num_output < 1:
            raise LayerError("needs a num_output above 0")
        self._margin, self._iteration = p.type + 1, p.iteration
        self.add_blob((p.num_output, bottom[0].count(check_axis(bottom[0], p.axis))), p.weight_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        axis = check_axis(bottom[0], self.param.margin_inner_product_param.axis)
        n_classes, n_features = self.blobs[0].shape
        n_items = bottom[0].count(0, axis)
        if bottom[0].count(axis) != n_features or bottom[1].n_elems != n_items:
            raise LayerError(f"wants {n_features} features from axis {axis} on and a label for each item, got "
                             f"{bottom[0].shape} and {bottom[1].shape}")
        top[0].reshape((*bottom[0].shape[:axis], n_classes))
        if len(top) > 1:
            top[1].reshape((1,))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        w = self.blobs[0].data
        w /= np.sqrt(np.square(w).sum(axis=1, keepdims=True))
        self._iteration += 1
        p = self.param.margin_inner_product_param
        with np.errstate(all="ignore"):
            falling = p.base * np.power(1 + p.gamma * self._iteration, -np.float64(p.power))
        self._share = max(float(falling), p.lambda_min)  # lambda
        labels, _ = read_labels(bottom[1].data, len(w))
        x = bottom[0].data.reshape(len(labels), w.shape[1])
        products = x @ w.T
        self._mine = np.arange(len(labels)), labels
        if self._margin > 1:
            self._lengths = np.sqrt(np.square(x).sum(axis=1))
            plain = products[self._mine]
            value, self._slope = angular(plain / self._lengths, self._margin)
            products[self._mine] = (self._lengths * value + self._share * plain) / (1 + self._share)
            self._value, self._cosine = value, plain / self._lengths
        top[0].data[...] = products.reshape(top[0].shape)
        if len(top) > 1:
            top[1].data[...] = self._share

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, [1])
        w = self.blobs[0].data
        gy, x = top[0].diff.reshape(-1, len(w)), bottom[0].data.reshape(-1, w.shape[1])
        if self.param_propagate_down[0]:
            self.blobs[0].diff[...] += gy.T @ x
        if propagate_down[0]:
            gx = gy @ w
            if self._margin > 1:
                own = gy[self._mine][:, None] / (1 + self._share)
                gx += own * (self._through_margin(w[self._mine[1]], x) - w[self._mine[1]])
            bottom[0].diff[...] = gx.reshape(bottom[0].shape)

    def _through_margin(self, rows: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The scaled gradient of |x| psi, (N, features), from the rows of the true classes."""
        on_row, on_x = self._slope, (self._value - self._cosine * self._slope) / self._lengths
        length = np.hypot(on_row, on_x)
        gradient: np.ndarray = (on_row / length)[:, None] * rows + (on_x / length)[:, None] * x
        return gradient


def angular(cosines: np.ndarray, margin: int) -> tuple[np.ndarray, np.ndarray]:
    """psi of angles with a margin of 1 to 4, and its derivative by their cosine."""
    angles = np.arccos(np.clip(cosines, -1, 1))
    k = np.minimum(np.floor(angles * margin / np.pi), margin - 1)
    signs = 1 - 2 * (k % 2)
    polynomial = POLYNOMIALS[margin - 1]
    value, slope = np.polyval(polynomial, cosines), np.polyval(np.polyder(polynomial), cosines)
    return (signs * value - 2 * k).astype(cosines.dtype), (signs * slope).astype(cosines.dtype)
