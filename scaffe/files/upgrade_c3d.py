"""Layers of C3D's old nets into the form of its newer ones (facebookarchive/C3D, v1.0 and v1.1)."""

from __future__ import annotations

from typing import Any

from scaffe.errors import UserError
from scaffe.files.message_fields import put

CONVOLUTION = ("num_output", "bias_term", "pad", "kernel_size", "group", "kernel_depth", "stride", "temporal_stride",
               "weight_filler", "bias_filler", "filter_group", "temporal_pad")
POOLING = ("pool", "kernel_size", "stride", "pad", "kernel_depth", "temporal_stride")
VIDEO = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "new_length", "show_data",
         "use_image", "use_temporal_jitter", "sampling_rate", "root_folder")
TRANSFORM = ("scale", "mean_file", "crop_size", "mirror")
MOVES = {"Convolution3D": ("convolution_param", "convolution3d_param", CONVOLUTION),
         "Pooling3D": ("pooling_param", "pooling3d_param", POOLING),
         "VideoData": ("image_data_param", "video_data_param", VIDEO)}


def upgrade_c3d(layer: Any) -> None:
    """Move the options that old nets give in the messages of other layers; changes the LayerParameter.

    Raises:
        UserError: an option is given more than once.
    """
    old_name, new_name, names = MOVES.get(layer.type, ("", "", ()))
    if not old_name or not layer.HasField(old_name) or layer.HasField(new_name):
        return
    old, new = getattr(layer, old_name), getattr(layer, new_name)
    for name in names:
        _move(old, new, name, layer.name)
    if layer.type == "VideoData":
        for name in TRANSFORM:
            _move(old, layer.transform_param, name, layer.name)
        if old.HasField("mean_value") and not old.HasField("mean_file"):
            layer.transform_param.mean_value.append(old.mean_value)
    layer.ClearField(old_name)


def _move(old: Any, new: Any, name: str, layer_name: str) -> None:
    value = getattr(old, name)
    if hasattr(value, "append"):
        if len(value) > 1:
            raise UserError(f"layer {layer_name!r}: {name} is given {len(value)} times, C3D's layers take it once")
        if value:
            put(new, name, value[0])
    elif old.HasField(name):
        put(new, name, value)
