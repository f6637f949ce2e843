"""Broadcasting of a factor or offset over consecutive axes of a blob: shared by the layers Scale and Bias."""

from __future__ import annotations

from scaffe.layers.base.blob import Blob, Shape
from scaffe.layers.base.errors import LayerError
from scaffe.layers.base.labels import check_axis


def covered_shape(blob: Blob, axis: int, num_axes: int) -> Shape:
    """The blob's dimensions of ``num_axes`` axes from ``axis`` on (-1: all). Raises LayerError if it has fewer."""
    if num_axes == 0:
        return ()
    first = check_axis(blob, axis)
    end = blob.ndim if num_axes == -1 else first + num_axes
    if num_axes < -1 or end > blob.ndim:
        raise LayerError(f"{num_axes} axes from axis {axis} on do not fit shape {blob.shape}")
    return blob.shape[first:end]


def spread_shape(blob: Blob, covered: Shape, axis: int) -> Shape:
    """``covered`` with ones before and after it, so that it broadcasts over the blob in Caffe's order.

    Raises:
        LayerError: the blob's axes from ``axis`` on differ from ``covered``.
    """
    first = check_axis(blob, axis) if covered else 0
    if blob.shape[first:first + len(covered)] != covered:
        raise LayerError(f"shape {covered} does not fit the bottom {blob.shape} from axis {axis} on")
    return (*(1,) * first, *covered, *(1,) * (blob.ndim - first - len(covered)))


def summed_axes(spread: Shape, shape: Shape) -> tuple[int, ...]:
    """The axes over which a gradient of ``shape`` is summed to get the gradient of a factor of shape ``spread``."""
    return tuple(i for i, (s, n) in enumerate(zip(spread, shape, strict=True)) if s == 1 and n != 1)
