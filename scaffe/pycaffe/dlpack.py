"""Other libraries' arrays as a blob's own memory, by DLPack."""

from __future__ import annotations

from typing import Any

from scaffe.errors import UserError
from scaffe.layers.base.blob import Blob

REFUSALS = (AttributeError, BufferError, RuntimeError, TypeError, ValueError)  # what libraries raise


def memory_for(blob: Blob, source: Any, xp: Any) -> Any:
    """The memory of an array or tensor, flat, in a blob's storage order.

    Args:
        blob: whose shape, type and order of memory the array must have.
        source: it has ``__dlpack__``.
        xp: the array module of the blob's backend.

    Raises:
        UserError: the array is none of DLPack's, lies in the memory of another device, or does not fit the blob.
    """
    try:
        array = xp.from_dlpack(source)
    except REFUSALS as error:
        said = " ".join(str(error).split())[:200]
        raise UserError(f"expected an array where the net computes (DLPack), got {type(source).__name__}: {said}"
                        ) from error
    if tuple(array.shape) != blob.shape or array.dtype != blob.dtype:
        raise UserError(f"expected {blob.dtype} of shape {blob.shape}, got {array.dtype} of shape {tuple(array.shape)}")
    stored = xp.moveaxis(array, 1, -1) if blob.channels_last else array
    if not stored.flags.c_contiguous:
        order = "channels-last memory (PyTorch: memory_format=torch.channels_last)" if blob.channels_last else (
            "contiguous memory")
        raise UserError(f"expected {order}, got strides of {tuple(array.strides)} bytes for shape {blob.shape}")
    if not getattr(array.flags, "writeable", True):
        raise UserError("expected memory that can be written; NumPy before 2.1 takes none from other libraries")
    return stored.reshape(-1)
