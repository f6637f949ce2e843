"""ReLU and its kin, with a fixed slope, a learned one (PReLU) and one drawn at random (Insanity, RReLU)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.errors import LayerError
from scaffe.layers.base.axes import check_n_axes, is_plain
from scaffe.layers.base.bases import Elementwise, Neuron
from scaffe.layers.base.blob import Blob
from scaffe.layers.base.layer import TRAIN, Layer, layer_types
from scaffe.layers.kernels.extents import WORD, n_words


@layer_types.register("ReLU")
class ReLU(Neuron):
    """y = x where x > 0, negative_slope · x elsewhere (Caffe 1.0). It works in place, too.

    The gradient needs only whether x > 0. Unless the slope is negative, y > 0 tells the same, so that x need not be
    kept.

    Attributes:
        uses_sign_mask: whether a bit of each element is kept for backward, which then reads no data ("Binarize" of
            Gist, Jain et al., ISCA 2018). Set before ``reshape``, with ``reads_bottoms``, where the slope is not
            negative.
    """

    uses_sign_mask = False

    by_image = recordable = repeatable = True
    reads_tops = False
    has_half_kernels = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read the slope. If it is negative, the layer keeps a copy of x when it works in place."""
        self._slope = float(self.param.relu_param.negative_slope)
        self._sign_mask: np.ndarray | None = None
        self.keeps_input = self._slope < 0

    @property
    def relu_slope(self) -> float | None:
        """The slope, for a layer that this one can be fused with; None if it must not be fused."""
        return None if self.keeps_input else self._slope

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if not self.uses_sign_mask:
            self._sign_mask = None
        elif self.sign_mask_bytes != WORD.itemsize * n_words(bottom[0].n_elems):
            self._sign_mask = self.context.xp.zeros(n_words(bottom[0].n_elems), WORD)

    @property
    def sign_mask_bytes(self) -> int:
        """Of the bits that it keeps."""
        return 0 if self._sign_mask is None else int(self._sign_mask.nbytes)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().forward(bottom, top)
        self.keep(top)

    def keep(self, top: Sequence[Blob]) -> None:
        if self._sign_mask is not None:
            self.context.kernels.save_sign_mask(top[0].data_flat, self._sign_mask)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if self._sign_mask is None:
            super().backward(top, propagate_down, bottom)
        elif propagate_down[0]:
            self.context.kernels.relu_backward_mask(self._sign_mask, top[0].diff_flat, bottom[0].diff_flat, self._slope)

    def activate(self, x: np.ndarray, y: np.ndarray) -> None:
        self.context.kernels.relu_forward(x, y, self._slope)

    def differentiate(self, x: np.ndarray, y: np.ndarray, gy: np.ndarray, gx: np.ndarray) -> None:
        """Write gx: gy where x > 0, negative_slope · gy elsewhere."""
        self.context.kernels.relu_backward(x, gy, gx, self._slope)


FIRST_SLOPE = 0.25  # Caffe's value if the prototxt gives no filler


@layer_types.register("PReLU")
class PReLU(Layer):
    """y = x where x > 0, slope x elsewhere, with learned slopes.

    Bottom and top: (N, C, ...). Blobs: one slope for each channel, (C,), or with channel_shared one for all, ().
    """

    by_image = True
    temporaries = 3

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        check_n_axes(2, bottom[0])
        p = self.param.prelu_param
        self.shared = p.channel_shared
        blob = self.add_blob(() if self.shared else bottom[0].shape[1:2], p.filler if p.HasField("filler") else None)
        if not p.HasField("filler"):
            blob.data[...] = FIRST_SLOPE

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        check_n_axes(2, bottom[0])
        n_channels = bottom[0].shape[1]
        if not self.shared and n_channels != self.blobs[0].n_elems:
            raise LayerError(f"has slopes for {self.blobs[0].n_elems} channels, got shape {bottom[0].shape}")
        self._kept: np.ndarray | None = None
        if bottom[0] is top[0]:
            self._kept = np.empty_like(bottom[0].data)
        else:
            top[0].reshape(bottom[0].shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].data
        if self._kept is not None:
            self._kept[...] = x
        np.copyto(top[0].data, np.where(x > 0, x, self._slopes(x) * x))

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        """Add the slopes' gradients; write the bottom's: gy where x > 0, slope gy elsewhere (gy is the top's)."""
        x = bottom[0].data if self._kept is None else self._kept
        gy, below = top[0].diff, x <= 0
        if self.param_propagate_down[0]:
            others = None if self.shared else tuple(a for a in range(x.ndim) if a != 1)
            self.blobs[0].diff[...] += (gy * x * below).sum(axis=others)
        if propagate_down[0]:
            np.multiply(gy, np.where(below, self._slopes(x), 1), out=bottom[0].diff)

    def _slopes(self, x: np.ndarray) -> np.ndarray:
        return self.blobs[0].data.reshape((-1,) + (1,) * (x.ndim - 2))


@layer_types.register("Insanity")
class Insanity(Elementwise):
    """y = x where x > 0, x / a elsewhere; a is drawn from [lb, ub) for each element in training.

    In testing a = (ub - lb) / (log |ub| - log |lb|).

    Raises LayerError if ub is not above lb, one of them is 0, or the bottom has fewer than two axes.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.insanity_param
        if not p.ub > p.lb or p.lb * p.ub == 0:
            raise LayerError(f"wants bounds lb below ub, neither of them 0, got {p.lb:g} and {p.ub:g}")
        ratio = np.log(abs(p.ub)) - np.log(abs(p.lb))
        self._mean = (p.ub - p.lb) / ratio if ratio else np.inf
        self._low, self._range = p.lb, p.ub - p.lb

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if bottom[0].ndim < 2:
            raise LayerError(f"takes bottoms of two axes or more, got shape {bottom[0].shape}")
        super().reshape(bottom, top)
        slopes = self.context.dtype if self.context.phase == TRAIN else np.result_type(self.context.dtype, self._mean)
        self._factors: np.ndarray = self.context.xp.empty(bottom[0].n_elems, slopes)
        self._draws = self.context.kernels.uniform(bottom[0].shape, not is_plain(bottom[0]), self.context.draws,
                                                   self.context.dtype)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Draw the slopes and write y, piece by piece, so that temporaries are short."""
        drawn = [self._draws.next()] if self.context.phase == TRAIN else []
        for x, y, factors, *draws in self._pieces(bottom[0].data_flat, top[0].data_flat, self._factors, *drawn):
            slopes = self._low + self._range * draws[0] if draws else self._mean
            one = x.dtype.type(1)
            factors[...] = np.where(x > 0, one, one / slopes)
            np.multiply(x, factors, out=y)

    def backward(self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]) -> None:
        if propagate_down[0]:
            np.multiply(top[0].diff_flat, self._factors, out=bottom[0].diff_flat)
