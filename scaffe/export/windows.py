"""Numbers a spatial axis of convolutions and pooling, however the prototxt gives them."""

from __future__ import annotations

from typing import Any


def spatial(p: Any, name: str, default: int, n_axes: int) -> list[int]:
    """A convolution's stride, pad or dilation."""
    if name != "dilation" and (p.HasField(f"{name}_h") or p.HasField(f"{name}_w")):
        return [getattr(p, f"{name}_h"), getattr(p, f"{name}_w")]
    given = list(getattr(p, name)) or [default]
    return given if len(given) == n_axes else given * n_axes


def window(p: Any, name: str) -> list[int]:
    """A pooling's kernel, stride or pad."""
    if p.HasField(f"{name}_h") or p.HasField(f"{name}_w"):
        return [getattr(p, f"{name}_h"), getattr(p, f"{name}_w")]
    return [getattr(p, "kernel_size" if name == "kernel" else name)] * 2


def concat_axis(p: Any) -> int:
    """A Concat's axis, in either of its fields."""
    return int(p.concat_dim if p.HasField("concat_dim") else p.axis)
