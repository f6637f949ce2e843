"""InnerProduct, the fully connected layer, and Embed, which looks up a row of a learned table (Caffe 1.0)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_axis, is_plain, weights_for_backward, weights_for_forward
from scaffe.layers.base.bases import FusesRelu, refuse_gradient
from scaffe.layers.base.blob import Blob, claim_together
from scaffe.layers.base.layer import Layer, layer_types
from scaffe.layers.kernels.plans import PreparedCalls, RowwisePlan, prepared


@layer_types.register("InnerProduct")
class InnerProduct(FusesRelu):
    """y = x wᵀ + b, where x is the bottom with all axes from ``axis`` on flattened into K inputs, in Caffe's order.

    Bottom: (..., K inputs in any number of axes). Top: the axes before ``axis``, then num_output.
    Blobs: weights (num_output, K), or (K, num_output) with ``transpose``; bias (num_output,) unless bias_term is false.

    Raises:
        LayerError: num_output is missing, ``axis`` is out of range, or K does not fit the weights.
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
        b = self.blobs[1].data if len(self.blobs) > 1 else None
        self._plan.forward(self._input(bottom[0]), weights_for_forward(self.blobs[0]), b, y, relu_slope)
        if self._plain_top is not None:
            self.context.kernels.copy_part(top[0].data, self._plain_top)

    def prepare_calls(self, bottom: Sequence[Blob], top: Sequence[Blob], fused: bool) -> PreparedCalls | None:
        if self._plain_top is not None or self.blobs[0].kernel_copy is not None:
            return None
        x = bottom[0].data_flat if self._plain is None else bottom[0].data
        b = self.blobs[1].data if len(self.blobs) > 1 else None
        return prepared(self._plan, x, self.blobs[0].data, b, top[0].data_flat, self._fused_slope if fused else None)

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

    def _backward_weights(self, x: np.ndarray, gy: np.ndarray) -> None:
        learns = self.param_propagate_down
        if not learns[0]:
            self.blobs[1].diff[...] += gy.reshape(-1, self.blobs[1].n_elems).sum(0, dtype=self.blobs[1].dtype)
            return
        (gw, *gb), fresh = claim_together([blob for blob, wanted in zip(self.blobs, learns, strict=True) if wanted])
        self._plan.backward_weights(x, gy, gw.reshape(self.blobs[0].shape), gb[0] if gb else None, fresh)

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
