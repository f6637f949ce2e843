"""Tensors of the pretend cuDNN: what they are, and their elements on raw addresses."""

from __future__ import annotations

import ctypes
from enum import Enum
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided


class data_type(Enum):
    FLOAT, DOUBLE, HALF, BFLOAT16, BOOLEAN, NOT_SET = range(6)


class Tensor:
    """A tensor's description; setters give the tensor back."""

    def __init__(self, dim: list[int] | None = None, stride: list[int] | None = None, dtype: Any = None,
                 on_host: bool = False) -> None:
        self.dim, self.stride, self.dtype, self.uid, self.is_output = dim, stride, dtype, None, False
        self.on_host = on_host

    def set_uid(self, uid: int) -> Tensor:
        self.uid = uid
        return self

    def set_output(self, is_output: bool) -> Tensor:
        self.is_output = is_output
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self

    def set_data_type(self, dtype: Any) -> Tensor:
        self.dtype = dtype
        return self

    @property
    def numpys_type(self) -> np.dtype:
        """Its elements."""
        import ml_dtypes

        return np.dtype({"FLOAT": np.float32, "HALF": np.float16, "BFLOAT16": ml_dtypes.bfloat16}[self.dtype.name])

    @property
    def n_bytes(self) -> int:
        """Of its memory; sign bits are packed."""
        return prod(self.dim) // 8 if self.dtype is data_type.BOOLEAN else prod(self.dim) * self.numpys_type.itemsize

    def read(self, address: int) -> np.ndarray:
        """What lies at an address, in float64."""
        if self.dtype is not data_type.BOOLEAN:
            return self.on(address).astype(np.float64)
        bits = np.unpackbits(_bytes_at(address, self.n_bytes), bitorder="little")
        return as_strided(bits, self.dim, self.stride).astype(np.float64)  # strides count bits

    def write(self, values: np.ndarray, address: int) -> None:
        """Put a result there."""
        if self.dtype is not data_type.BOOLEAN:
            target = self.on(address)
            target[...] = values.reshape(target.shape)
            return
        bits = np.empty(prod(self.dim), np.uint8)
        as_strided(bits, self.dim, self.stride)[...] = values
        _bytes_at(address, self.n_bytes)[...] = np.packbits(bits, bitorder="little")

    def on(self, address: int) -> np.ndarray:
        """The memory at an address, of this description."""
        if address % 16 and not self.on_host:
            raise RuntimeError(f"tensor {self.uid} lies at {address:#x}, which is not a multiple of 16")
        dtype = self.numpys_type
        n_elems = 1 + sum((n - 1) * s for n, s in zip(self.dim, self.stride))
        raw = _bytes_at(address, n_elems * dtype.itemsize)
        return as_strided(raw.view(dtype), self.dim, [s * dtype.itemsize for s in self.stride])


def _bytes_at(address: int, n_bytes: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_uint8 * n_bytes).from_address(address), np.uint8)
