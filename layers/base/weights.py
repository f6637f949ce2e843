"""Weights as kernels take them: a blob's data, or the copy that is kept for kernels of a half type."""

from __future__ import annotations

from typing import Any

from scaffe.layers.base.blob import Blob


def weights_for_forward(blob: Blob) -> Any:
    """The weights as a plan's forward takes them: the copy for kernels where there is one, else the blob's data."""
    return blob.data if blob.kernel_copy is None else blob.kernel_copy.renewed()


def weights_for_backward(blob: Blob) -> Any:
    """The weights that forward read."""
    return blob.data if blob.kernel_copy is None else blob.kernel_copy.array
