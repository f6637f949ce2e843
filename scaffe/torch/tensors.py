"""Tensors as the flat arrays that our collectives take, without a copy where possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

CARRIED = (torch.float32, torch.float64, torch.float16, torch.int32, torch.int64)
"""The types that collectives compute on; others are widened."""
WIDER = {torch.bfloat16: torch.float32, torch.bool: torch.int32, torch.uint8: torch.int32, torch.int8: torch.int32,
         torch.int16: torch.int32}
WORD_BYTES = 4


def reducible(tensor: torch.Tensor) -> torch.Tensor:
    """Gives a tensor's values as a flat one that can be reduced.

    Returns:
        Shape (tensor.numel(),): the tensor's own memory where it is contiguous and of a dtype of `CARRIED`, else a
        copy, of a wider dtype where needed.

    Raises:
        TypeError: nothing wider is known.
    """
    dtype = WIDER.get(tensor.dtype, tensor.dtype)
    if dtype not in CARRIED:
        raise TypeError(f"cannot reduce tensors of {tensor.dtype}")
    return tensor.detach().contiguous().to(dtype).view(-1)


def movable(tensor: torch.Tensor) -> torch.Tensor:
    """Gives a tensor's bytes as a flat one that can be sent around.

    Returns:
        float32, whose values mean nothing: one dtype needs one compiled kernel. The tensor's own memory where it is
        contiguous and a whole number of words long; else a copy, padded with zeros.
    """
    flat = tensor.detach().contiguous().view(-1)
    n_bytes = flat.numel() * flat.element_size()
    if n_bytes % WORD_BYTES == 0 and flat.storage_offset() * flat.element_size() % WORD_BYTES == 0:
        return flat.view(torch.uint8).view(torch.float32)
    padded = flat.new_zeros(-(-n_bytes // WORD_BYTES), dtype=torch.float32)
    padded.view(torch.uint8)[:n_bytes] = flat.view(torch.uint8)
    return padded


def put_values(flat: torch.Tensor, tensor: torch.Tensor) -> None:
    """Writes into `tensor` the flat tensor that `reducible(tensor)` gave, which has been changed since."""
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))


def put_bytes(flat: torch.Tensor, tensor: torch.Tensor) -> None:
    """Writes into `tensor` what `movable(tensor)` or `raw(tensor)` gave, which has been changed since."""
    if flat.data_ptr() != tensor.data_ptr():
        n_bytes = tensor.numel() * tensor.element_size()
        tensor.detach().copy_(flat.view(torch.uint8)[:n_bytes].view(tensor.dtype).view(tensor.shape))


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Gives a tensor's bytes in host memory: uint8, flat; its own memory where it is contiguous and lies there."""
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)


def adjacent(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Gives equally long tensors that are adjacent in memory as one flat tensor; None where they are not adjacent."""
    first = tensors[0].detach()
    n_bytes = first.numel() * first.element_size()
    if any(tensor.dtype != first.dtype or not tensor.is_contiguous()
           or tensor.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
           or tensor.data_ptr() != first.data_ptr() + index * n_bytes for index, tensor in enumerate(tensors)):
        return None
    return first.as_strided((len(tensors) * first.numel(),), (1,))


def array_of(flat: torch.Tensor) -> Any:
    """The tensor as the collectives take it: NumPy's array of the same host memory, or the tensor on a GPU itself."""
    return np.asarray(_Interface(flat)) if flat.device.type == "cpu" else flat


class _Interface:
    """A tensor as NumPy reads it.

    After `Tensor.numpy` a storage could not be resized, which is how FSDP frees memory; what DLPack gives cannot be
    written in NumPy before 2.1, nor where PyTorch is older than that.
    """

    def __init__(self, flat: torch.Tensor) -> None:
        self._flat = flat
        dtype = np.dtype(str(flat.dtype).removeprefix("torch."))
        self.__array_interface__ = {"version": 3, "data": (flat.data_ptr(), False), "shape": tuple(flat.shape),
                                    "typestr": dtype.str}
