"""Maps pixel coordinates between two blobs of a net spec (Caffe 1.0, coord_map; Long et al., CVPR 2015).

A map is (axis, scale, shift): input coordinate x corresponds to output coordinate scale * x + shift, on ``axis`` (not
counting the batch axis) and all axes after it. axis is None for layers that keep coordinates. scale and shift may be
arrays with one value per spatial axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scaffe.net_spec import Top, layers

Map = tuple[Any, Any, Any]
IDENTITY: Map = (None, 1, 0)
PASS_THROUGH_LAYERS = ["AbsVal", "BatchNorm", "Bias", "BNLL", "Dropout", "Eltwise", "ELU", "Log", "LRN", "Exp", "MVN",
                       "Power", "ReLU", "PReLU", "Scale", "Sigmoid", "Split", "TanH", "Threshold"]
SIDEWAYS = {"kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w"}


class UndefinedMapException(Exception):
    """The layer has no coordinate map (an inner product, for example)."""


class AxisMismatchException(Exception):
    """The two maps are along different axes."""


class CropError(AssertionError, ValueError):
    """No crop aligns one blob with the other (also an AssertionError, as in pycaffe)."""


def conv_params(fn: Any) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """The geometry of a convolution, deconvolution or pooling layer of a net spec.

    Returns:
        (axis, stride, extent of the dilated kernel, padding).

    Raises:
        CropError: the layer gives height and width separately (``kernel_h``), which pycaffe does not support either.
    """
    params = fn.params.get("convolution_param", fn.params)
    if SIDEWAYS & set(fn.params):
        raise CropError(f"{fn.type_name}: give kernel_size, stride and pad, not {sorted(SIDEWAYS & set(fn.params))}")
    kernel = np.array(params["kernel_size"], ndmin=1)
    stride, pad = np.array(params.get("stride", 1), ndmin=1), np.array(params.get("pad", 0), ndmin=1)
    return params.get("axis", 1), stride, (kernel - 1) * np.array(params.get("dilation", 1), ndmin=1) + 1, pad


def crop_params(fn: Any) -> tuple[int, np.ndarray]:
    """Axis and offset of a Crop layer of a net spec."""
    params = fn.params.get("crop_param", fn.params)
    return params.get("axis", 2), np.array(params.get("offset", 0), ndmin=1)


def coord_map(fn: Any) -> Map:
    """The map of one layer of a net spec. Raises UndefinedMapException."""
    if fn.type_name in ("Convolution", "Pooling", "Im2col"):
        axis, stride, extent, pad = conv_params(fn)
        return axis, 1 / stride, (pad - (extent - 1) / 2) / stride
    if fn.type_name == "Deconvolution":
        axis, stride, extent, pad = conv_params(fn)
        return axis, stride, (extent - 1) / 2 - pad
    if fn.type_name == "Crop":
        axis, offset = crop_params(fn)
        return axis - 1, 1, -offset
    if fn.type_name in PASS_THROUGH_LAYERS:
        return IDENTITY
    raise UndefinedMapException(fn.type_name)


def compose(base_map: Map, next_map: Map) -> Map:
    """The map that applies ``next_map`` first and then ``base_map``. Raises AxisMismatchException."""
    (axis, scale, shift), (next_axis, next_scale, next_shift) = base_map, next_map
    if axis is not None and next_axis is not None and axis != next_axis:
        raise AxisMismatchException(f"axis {axis} and axis {next_axis}")
    return next_axis if axis is None else axis, scale * next_scale, scale * next_shift + shift


def inverse(coord_map: Map) -> Map:
    """The inverse map."""
    axis, scale, shift = coord_map
    return axis, 1 / scale, -shift / scale


def coord_map_from_to(top_from: Top, top_to: Top) -> Map:
    """The map between two tops of a net spec, through their nearest common ancestor.

    Raises:
        RuntimeError: the tops have no common ancestor from which every layer on the way has a map.
    """
    below = _maps_below(top_from)
    for top, found in _maps_below(top_to).items():
        if top in below:
            return compose(found, inverse(below[top]))
    raise RuntimeError("there is no coordinate map between the two tops: no layers with maps connect them")


def _maps_below(start: Top) -> dict[Top, Map]:
    """Each top that leads to ``start`` over layers with maps, nearest first, with the map from it to ``start``."""
    maps, waiting = {start: IDENTITY}, [start]
    while waiting:
        top = waiting.pop(0)
        try:
            step = coord_map(top.fn)
        except UndefinedMapException:
            continue
        inputs = top.fn.inputs[:1] if top.fn.type_name == "Crop" else top.fn.inputs  # Crop's second gives a size only
        for bottom in inputs:
            if bottom not in maps:
                waiting.append(bottom)
                maps[bottom] = compose(maps[top], step)
    return maps


def crop(top_from: Top, top_to: Top) -> Any:
    """A Crop layer that crops ``top_from`` so that it is aligned with ``top_to``.

    Raises:
        CropError: the scales differ, or the offset is negative or not an integer.
    """
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    if not np.all(np.equal(scale, 1)):
        raise CropError(f"cannot crop: the two tops differ in scale by {scale}")
    if not np.all(np.less_equal(shift, 0)) or not np.all(np.equal(np.round(shift), shift)):
        raise CropError(f"cannot crop: the offset {np.negative(shift)} must be whole and not negative")
    return layers.Crop(top_from, top_to,
                       crop_param={"axis": axis + 1, "offset": np.atleast_1d(-np.round(shift).astype(int)).tolist()})
