"""NVIDIA/caffe's BatchNorm, which can scale and shift too, as BVLC Caffe's BatchNorm and a Scale behind it."""

from __future__ import annotations

from typing import Any

from scaffe.proto import caffe_pb2

SCALES = ("scale_bias", "scale_filler", "bias_filler")
N_STATISTICS = 3  # the blobs that do not learn: mean, variance, what divides them


def split_norms(net: Any) -> None:
    """Give each BatchNorm with scale_bias, scale_filler or bias_filler a Scale of its own, in place.

    The Scale is called NAME_scale and has the fourth and fifth blob and ``param``, which are scale and bias; a trained
    net is split likewise, so its weights find their layers. ``use_global_stats: false`` goes, since that fork takes
    the running averages in testing whatever it says.

    Args:
        net: a NetParameter of today's form, changed in place.
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
    """A Scale layer with what ``layer`` has beyond normalising, which it loses."""
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
