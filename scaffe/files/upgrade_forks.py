"""Layers of forks in BVLC Caffe's form: C3D's old nets, NVIDIA/caffe's BatchNorm."""

from __future__ import annotations

from typing import Any

from scaffe.errors import UserError
from scaffe.files.upgrade_old import put
from scaffe.proto import caffe_pb2

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


SCALES = ("scale_bias", "scale_filler", "bias_filler")
N_STATISTICS = 3  # the blobs that do not learn: mean, variance, and their divisor


def split_norms(net: Any) -> None:
    """Give each BatchNorm of today's form with scale_bias, scale_filler or bias_filler a Scale of its own, in place.

    The Scale is called NAME_scale and has the fourth and fifth blob and ``param``, which are scale and bias; a trained
    net is split likewise, so that its weights match. ``use_global_stats: false`` is removed, since that fork always
    takes the running averages in testing.
    """
    layers: list[Any] = []
    for layer in net.layer:
        layers.append(layer)
        if scales_too(layer):
            layers.append(_scale_of(layer))
    if len(layers) > len(net.layer):
        del net.layer[:]
        net.layer.extend(layers)


def scales_too(layer: Any) -> bool:
    """Whether a LayerParameter is a BatchNorm that also scales and shifts."""
    options = layer.batch_norm_param
    return bool(layer.type == "BatchNorm" and (options.scale_bias or options.HasField("scale_filler")
                                               or options.HasField("bias_filler")))


def _scale_of(layer: Any) -> Any:
    """A Scale layer to which the scale and bias of ``layer`` are moved."""
    options = layer.batch_norm_param
    scale = caffe_pb2.LayerParameter(name=f"{layer.name}_scale", type="Scale", bottom=layer.top, top=layer.top,
                                     param=layer.param[N_STATISTICS:], blobs=layer.blobs[N_STATISTICS:],
                                     include=layer.include, exclude=layer.exclude)
    if layer.HasField("phase"):
        scale.phase = layer.phase
    scale.scale_param.bias_term = True
    for ours, theirs in (("filler", "scale_filler"), ("bias_filler", "bias_filler")):
        if options.HasField(theirs):
            getattr(scale.scale_param, ours).CopyFrom(getattr(options, theirs))
    del layer.param[N_STATISTICS:], layer.blobs[N_STATISTICS:]
    for spec in layer.param:
        spec.lr_mult = spec.decay_mult = 0
    for name in SCALES:
        options.ClearField(name)
    if not options.use_global_stats:
        options.ClearField("use_global_stats")
    return scale
