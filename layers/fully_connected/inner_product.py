"""InnerProduct, the fully connected layer; Embed, which looks up a row of a learned table (Caffe 1.0);
MarginInnerProduct, the angular margin of SphereFace (A-Softmax; Liu et al., CVPR 2017; wy1iu/sphereface)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis, is_plain, read_labels, weights_for_backward, weights_for_forward
from scaffe.layers.base.bases import Weighted, refuse_gradient
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.kernels.plans import PreparedCalls, RowwisePlan, prepared


@layer_types.register("InnerProduct")
class InnerProduct(Weighted):
    """y = x wᵀ + b, where x is the bottom with all axes from ``axis`` on flattened into K inputs, in Caffe's order.

    Bottom: (..., K inputs in any number of axes). Top: the axes before ``axis``, then num_output.
    Blobs: weights (num_output, K), or (K, num_output) with ``transpose``; bias (num_output,) unless bias_term is false.

    Raises LayerError if num_output is missing, ``axis`` is out of range, or K does not fit the weights.
    """

    recordable = repeatable = True
    reads_tops = False
    _plain: np.ndarray | None = None  # a copy of the bottom in Caffe's order, if it is stored in another
    has_half_kernels = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.inner_product_param
        if p.num_output < 1:
            raise LayerError("needs a num_output above 0")
        self._axis = check_axis(bottom[0], p.axis)
        k = bottom[0].count(self._axis)
        weights = self.add_blob((k, p.num_output) if p.transpose else (p.num_output, k), p.weight_filler)
        weights.kernel_order = weights.shape[1], 1
        if p.bias_term:
            self.add_blob((p.num_output,), p.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.inner_product_param
        k = bottom[0].count(self._axis)
        if k != self.blobs[0].shape[0 if p.transpose else 1]:
            raise LayerError(f"the bottom {bottom[0].shape} gives {k} inputs, the weights are {self.blobs[0].shape}")
        m = bottom[0].count(0, self._axis)
        self._plan = self.context.kernels.inner_product(m, p.num_output, k, p.transpose, self.context.dtype)
        top[0].reshape((*bottom[0].shape[:self._axis], p.num_output))
        self._plain = None if is_plain(bottom[0]) else self.context.xp.empty(bottom[0].shape, self.context.dtype)
        self._plain_top = None if is_plain(top[0]) else self.context.xp.empty(top[0].shape, self.context.dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob], relu_slope: float | None = None) -> None:
        y = top[0].data_flat if self._plain_top is None else self._plain_top
        self._plan.forward(self._input(bottom[0]), weights_for_forward(self.blobs[0]), self._bias(), y, relu_slope)
        if self._plain_top is not None:
            self.context.kernels.copy_part(top[0].data, self._plain_top)

    def prepare_calls(self, bottom: Sequence[Blob], top: Sequence[Blob], fused: bool) -> PreparedCalls | None:
        if self._plain_top is not None or self.blobs[0].kernel_copy is not None:
            return None
        x = bottom[0].data_flat if self._plain is None else bottom[0].data
        slope = self._fused_slope if fused else None
        return prepared(self._plan, x, self.blobs[0].data, self._bias(), top[0].data_flat, slope)

    def _input(self, x: Blob) -> np.ndarray:
        """The bottom's elements in Caffe's order, the order of the weights."""
        if self._plain is None:
            return x.data_flat
        self.context.kernels.copy_part(self._plain, x.data)
        return self._plain

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        gy = top[0].diff_flat
        if self._plain_top is not None:
            self.context.kernels.copy_part(self._plain_top, top[0].diff)
            gy = self._plain_top
        if propagate_down[0]:
            self._backward_bottom(gy, bottom[0])
        if any(self.param_propagate_down):
            self._backward_weights(self._input(bottom[0]), gy)

    def _backward_bottom(self, gy: np.ndarray, bottom: Blob) -> None:
        gx = bottom.diff_flat if self._plain is None else self._plain
        self._plan.backward_data(gy, weights_for_backward(self.blobs[0]), gx)
        if self._plain is not None:
            self.context.kernels.copy_part(bottom.diff, self._plain)
        self.bottoms_written()

    @property
    def param_rows(self) -> Sequence[slice]:
        return self._rowwise.rows if self._rowwise is not None and self._plain_top is None else ()

    @property
    def _rowwise(self) -> RowwisePlan | None:
        return self._plan if isinstance(self._plan, RowwisePlan) else None

    def backward_bottoms(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            self._backward_bottom(top[0].diff_flat, bottom[0])

    def backward_rows(self, rows: slice, diffs: Sequence[np.ndarray], top: Sequence[Blob],
                      bottom: Sequence[Blob]) -> None:
        plan, gy, (gw, *gb) = self._rowwise, top[0].diff_flat, diffs
        if plan is None:
            raise LayerError("computes gradients of all its rows at once")
        is_copied = self._plain is not None and rows.start > 0  # with the first block
        plan.backward_rows(self._plain if is_copied else self._input(bottom[0]), gy, rows, gw)
        for bias in gb:
            plan.backward_bias(gy, bias)


@layer_types.register("Embed")
class Embed(Layer):
    """Row ``index`` of the weights, plus a bias, for each index in the bottom.

    Bottom: whole numbers from 0 to input_dim - 1, of any shape. Top: the bottom's shape, then num_output.
    Blobs: weights (input_dim, num_output); bias (num_output,) unless bias_term is false.
    """

    host_only = True
    exact_bottoms = (0,)
    temporaries = 1
    gradient_bottoms = ()

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.embed_param
        for name in ("num_output", "input_dim"):
            if getattr(p, name) <= 0:
                raise LayerError(f"embed_param.{name} must be at least 1, got {getattr(p, name)}")
        self.add_blob((p.input_dim, p.num_output), p.weight_filler)
        if p.bias_term:
            self.add_blob((p.num_output,), p.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape((*bottom[0].shape, self.param.embed_param.num_output))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._indices = bottom[0].data.astype(np.int64)
        n_rows = self.param.embed_param.input_dim
        wrong = (self._indices < 0) | (self._indices >= n_rows)
        if wrong.any():
            raise LayerError(f"index {self._indices[wrong][0]} is not in a table of input_dim {n_rows}")
        top[0].data[...] = self.blobs[0].data[self._indices]
        if len(self.blobs) > 1:
            top[0].data[...] += self.blobs[1].data

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        refuse_gradient(propagate_down, [0])
        rows = top[0].diff.reshape(-1, self.param.embed_param.num_output)
        if self.param_propagate_down[0]:
            np.add.at(self.blobs[0].diff, self._indices.reshape(-1), rows)
        if len(self.blobs) > 1 and self.param_propagate_down[1]:
            self.blobs[1].diff[...] += rows.sum(axis=0)


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
