"""Reads and checks kernel, stride, pad and dilation of convolution and pooling parameters."""

from __future__ import annotations

from typing import Any

from scaffe.errors import LayerError

Ints = tuple[int, ...]
LARGEST = 2**31 - 1  # Caffe has them as C's int


def conv_geometry(p: Any, n_axes: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Kernel, stride, pad and dilation of a ConvolutionParameter, one number per spatial axis. Raises LayerError if one
    is missing, out of range, given too often, or in both of Caffe's ways (kernel_size, and kernel_h with kernel_w)."""
    refuse_times(p, "an N-dimensional Convolution takes kernel_size, stride and pad once an axis")
    kernel = _pair(p, "kernel_size", "kernel", n_axes) or _spread("kernel_size", p.kernel_size, n_axes, None)
    stride = _pair(p, "stride", "stride", n_axes) or _spread("stride", p.stride, n_axes, 1)
    pad = _pair(p, "pad", "pad", n_axes) or _spread("pad", p.pad, n_axes, 0)
    dilation = _spread("dilation", p.dilation, n_axes, 1)
    check_geometry(1, kernel_size=kernel, stride=stride, dilation=dilation)
    check_geometry(0, pad=pad)
    return kernel, stride, pad, dilation


def refuse_times(p: Any, instead: str) -> None:
    """Raise LayerError if a message has options that only C3D's layers have; ``instead`` says what to do then."""
    for name in ("kernel_depth", "temporal_stride", "temporal_pad", "filter_group"):
        if name in p.DESCRIPTOR.fields_by_name and p.HasField(name):
            raise LayerError(f"{name} is an option of C3D's layers Convolution3D and Pooling3D; {instead}")


def check_geometry(least: int, **numbers: Ints) -> None:
    """Raise LayerError if one of the numbers is less than ``least`` or more than 2^31 - 1."""
    for name, values in numbers.items():
        if min(values, default=least) < least or max(values, default=least) > LARGEST:
            raise LayerError(f"{name} must be {'above' if least else 'at least'} 0 and below 2^31, got "
                             f"{' x '.join(map(str, values))}")


def _pair(p: Any, name: str, short: str, n_axes: int) -> Ints | None:
    """The (h, w) given as two fields; None if neither is."""
    fields = (f"{short}_h", f"{short}_w")
    if not any(p.HasField(f) for f in fields):
        return None
    if len(getattr(p, name)):
        raise LayerError(f"give {name} or {fields[0]} and {fields[1]}, not both")
    if n_axes != 2:
        raise LayerError(f"{fields[0]} and {fields[1]} are for two spatial axes, the bottom has {n_axes}")
    return tuple(int(getattr(p, f)) for f in fields)


def _spread(name: str, given: Any, n_axes: int, default: int | None) -> Ints:
    values = tuple(int(v) for v in given) or ((default,) if default is not None else ())
    if len(values) == 1:
        return values * n_axes
    if len(values) != n_axes:
        raise LayerError(f"{name} is given {len(values)} times for {n_axes} spatial axes; give it once or once an axis")
    return values
