"""Matrix products of inner product layers, by oneDNN: on new processors twice as fast as the BLAS in NumPy's wheels."""

from __future__ import annotations

import numpy as np

from layers.kernels.onednn.library import Library, OnednnError
from layers.kernels.onednn.primitive import BIAS, DST, SRC, WEIGHTS, Primitive, place_of, relu_attribute, strided


class InnerProduct:
    """y = x wᵀ + b for M rows of K inputs and N outputs, float32; weights stay as Caffe has them.

    Args:
        lib: the library.
        m, n, k: the sizes, all above 0.
        transpose: w is (K, N) instead of (N, K).

    Raises:
        OnednnError: oneDNN has no kernel for it.
    """

    def __init__(self, lib: Library, m: int, n: int, k: int, transpose: bool = False) -> None:
        self._lib, self._m, self._n, self._k, self._transpose = lib, m, n, k, transpose
        self._forwards: dict[tuple[bool, float | None], Primitive] = {(True, None): self._build(True, None)}

    def _build(self, has_bias: bool, slope: float | None) -> Primitive:
        lib, m, n, k = self._lib, self._m, self._n, self._k
        x, y = strided(lib, (m, k), (k, 1)), strided(lib, (m, n), (n, 1))
        w = strided(lib, (k, n), (n, 1) if self._transpose else (1, k))
        b = strided(lib, (1, n), (n, 1)) if has_bias else None
        attribute = None if slope is None else relu_attribute(lib, slope)
        desc = lib.make("matmul_primitive_desc_create", lib.engine, x, w, b, y, attribute)
        return Primitive(lib, desc, [(SRC, x), (WEIGHTS, w), *([(BIAS, b)] if has_bias else []), (DST, y)])

    def forward(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None, y: np.ndarray,
                relu_slope: float | None = None) -> None:
        """y = x wᵀ + b, with ReLU of that slope where one is given."""
        key = (b is not None, relu_slope)
        if key not in self._forwards:
            self._forwards[key] = self._build(*key)
        self._forwards[key].run(x, w, *(() if b is None else (b,)), y)

    def backward_data(self, gy: np.ndarray, w: np.ndarray, gx: np.ndarray) -> None:
        """Write the bottom's gradient."""
        m, n, k = self._m, self._n, self._k
        turn, stride = (b"T", n) if self._transpose else (b"N", k)
        self._multiply(b"N", turn, (m, k, n), (gy, n), (w, stride), (gx, k), 0.0)

    def backward_weights(self, x: np.ndarray, gy: np.ndarray, gw: np.ndarray, gb: np.ndarray | None,
                         overwrite: bool = False) -> None:
        """Add the weights' and the bias's gradients to gw and gb, or write them."""
        m, n, k = self._m, self._n, self._k
        first, second = ((x, k), (gy, n)) if self._transpose else ((gy, n), (x, k))
        rows, columns = first[1], second[1]
        self._multiply(b"T", b"N", (rows, columns, m), first, second, (gw, columns), 0.0 if overwrite else 1.0)
        if gb is not None:
            total = gy.reshape(m, n).sum(0)
            gb[...] = total if overwrite else gb + total

    def _multiply(self, turn_a: bytes, turn_b: bytes, sizes: tuple[int, int, int], a: tuple[np.ndarray, int],
                  b: tuple[np.ndarray, int], c: tuple[np.ndarray, int], beta: float) -> None:
        """c = a b + beta c, row by row in memory; each matrix comes with the distance of its rows."""
        (left, lda), (right, ldb), (out, ldc) = a, b, c
        status = self._lib.sgemm(turn_a, turn_b, *sizes, 1.0, place_of(left), lda, place_of(right), ldb, beta,
                                 place_of(out), ldc)
        if status:
            raise OnednnError("sgemm", status)
