"""Upgrades the first nets (V0: all options in one message) and those of 2014 (V1: ``layers`` with enum types)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from scaffe.errors import UserError
from scaffe.log import warning
from scaffe.proto import caffe_pb2


def put(message: Any, name: str, value: Any) -> None:
    """Set a field: a repeated one gets the value (or values) appended, a message is copied, a plain one assigned."""
    target = getattr(message, name)
    if hasattr(target, "append"):
        target.extend(value if hasattr(value, "append") else [value])
    elif hasattr(target, "CopyFrom"):
        target.CopyFrom(value)
    else:
        setattr(message, name, value)


V0_TYPES = {  # name in V0 → the enum's name in V1
    "accuracy": "ACCURACY", "bnll": "BNLL", "concat": "CONCAT", "conv": "CONVOLUTION", "data": "DATA",
    "dropout": "DROPOUT", "euclidean_loss": "EUCLIDEAN_LOSS", "flatten": "FLATTEN", "hdf5_data": "HDF5_DATA",
    "hdf5_output": "HDF5_OUTPUT", "im2col": "IM2COL", "images": "IMAGE_DATA", "infogain_loss": "INFOGAIN_LOSS",
    "innerproduct": "INNER_PRODUCT", "lrn": "LRN", "multinomial_logistic_loss": "MULTINOMIAL_LOGISTIC_LOSS",
    "pool": "POOLING", "relu": "RELU", "sigmoid": "SIGMOID", "softmax": "SOFTMAX", "softmax_loss": "SOFTMAX_LOSS",
    "split": "SPLIT", "tanh": "TANH", "window_data": "WINDOW_DATA"}
CONV, INNER, POOL, LRN = "convolution_param", "inner_product_param", "pooling_param", "lrn_param"
DATA, HDF5, IMAGES, WINDOW = "data_param", "hdf5_data_param", "image_data_param", "window_data_param"
WEIGHTED = {"conv": CONV, "innerproduct": INNER}
READERS = {"data": DATA, "hdf5_data": HDF5, "images": IMAGES, "window_data": WINDOW}
TRANSFORM = dict.fromkeys(("data", "images", "window_data"), "transform_param")
ROUTES: dict[str, tuple[str, dict[str, str]]] = {  # V0 field → (its name now, where by type)
    "num_output": ("num_output", WEIGHTED), "biasterm": ("bias_term", WEIGHTED),
    "weight_filler": ("weight_filler", WEIGHTED), "bias_filler": ("bias_filler", WEIGHTED),
    "pad": ("pad", {"conv": CONV, "pool": POOL}), "kernelsize": ("kernel_size", {"conv": CONV, "pool": POOL}),
    "stride": ("stride", {"conv": CONV, "pool": POOL}), "group": ("group", {"conv": CONV}),
    "pool": ("pool", {"pool": POOL}), "dropout_ratio": ("dropout_ratio", {"dropout": "dropout_param"}),
    "local_size": ("local_size", {"lrn": LRN}), "alpha": ("alpha", {"lrn": LRN}), "beta": ("beta", {"lrn": LRN}),
    "k": ("k", {"lrn": LRN}), "source": ("source", READERS | {"infogain_loss": "infogain_loss_param"}),
    "scale": ("scale", TRANSFORM), "meanfile": ("mean_file", TRANSFORM), "cropsize": ("crop_size", TRANSFORM),
    "mirror": ("mirror", TRANSFORM), "batchsize": ("batch_size", READERS),
    "rand_skip": ("rand_skip", {"data": DATA, "images": IMAGES}), "shuffle_images": ("shuffle", {"images": IMAGES}),
    "new_height": ("new_height", {"images": IMAGES}), "new_width": ("new_width", {"images": IMAGES}),
    "concat_dim": ("concat_dim", {"concat": "concat_param"}),
    "det_fg_threshold": ("fg_threshold", {"window_data": WINDOW}),
    "det_bg_threshold": ("bg_threshold", {"window_data": WINDOW}),
    "det_fg_fraction": ("fg_fraction", {"window_data": WINDOW}),
    "det_context_pad": ("context_pad", {"window_data": WINDOW}),
    "det_crop_mode": ("crop_mode", {"window_data": WINDOW})}
COPIED = ("blobs", "blobs_lr", "weight_decay", "name")


def upgrade_v0(net: Any) -> Any:
    """A new NetParameter in V1's form, padding layers folded into the convolutions behind them. Raises UserError."""
    new = type(net)()
    new.CopyFrom(net)
    new.ClearField("layers")
    for old in _fold_padding(net.layers):
        _upgrade_v0_layer(old, new.layers.add())
    return new


def _fold_padding(layers: Iterable[Any]) -> Iterator[Any]:
    """The layers without padding layers, whose pad has gone to those that read them."""
    makers: dict[str, Any] = {}
    for old in layers:
        folded = type(old)()
        folded.CopyFrom(old)
        for place, name in enumerate(old.bottom):
            pad = makers.get(name)
            if pad is not None and pad.layer.type == "padding":
                _check_padding(pad, old)
                folded.layer.pad = pad.layer.pad
                folded.bottom[place] = pad.bottom[0]
        makers.update(dict.fromkeys(old.top, old))
        if old.layer.type != "padding":
            yield folded


def _check_padding(pad: Any, reader: Any) -> None:
    if reader.layer.type not in ("conv", "pool") or len(reader.bottom) != 1:
        raise UserError(f"the old padding layer {pad.layer.name!r} must stand before a conv or pool layer of one "
                        f"bottom, not before {reader.layer.name!r} of type {reader.layer.type!r}")
    if len(pad.bottom) != 1 or len(pad.top) != 1:
        raise UserError(f"the old padding layer {pad.layer.name!r} takes one bottom and one top")


def _upgrade_v0_layer(old: Any, layer: Any) -> None:
    options = old.layer
    kind = options.type
    if kind not in V0_TYPES:
        raise UserError(f"layer {options.name!r} is of the old type {kind!r}, which is unknown")
    layer.type = layer.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_name[V0_TYPES[kind]].number
    layer.bottom.extend(old.bottom)
    layer.top.extend(old.top)
    for field, value in options.ListFields():
        if field.name in COPIED:
            put(layer, field.name, value)
        elif field.name == "hdf5_output_param":
            layer.hdf5_output_param.CopyFrom(value)
        elif field.name in ROUTES:
            name, places = ROUTES[field.name]
            if kind in places:
                put(getattr(layer, places[kind]), name, value)
            else:
                warning(f"layer {options.name!r} of the old type {kind!r} takes no {field.name}; it is ignored, as in "
                        "Caffe")


V1_TYPES = {name: name.title().replace("_", "") for name in (
    "ACCURACY", "CONCAT", "CONTRASTIVE_LOSS", "CONVOLUTION", "DECONVOLUTION", "DATA", "DROPOUT", "DUMMY_DATA",
    "EUCLIDEAN_LOSS", "ELTWISE", "EXP", "FLATTEN", "HINGE_LOSS", "IMAGE_DATA", "INFOGAIN_LOSS", "INNER_PRODUCT",
    "MEMORY_DATA", "MULTINOMIAL_LOGISTIC_LOSS", "POOLING", "POWER", "SIGMOID", "SIGMOID_CROSS_ENTROPY_LOSS", "SILENCE",
    "SLICE", "SOFTMAX", "SPLIT", "THRESHOLD", "WINDOW_DATA")}
V1_TYPES |= {"NONE": "", "ABSVAL": "AbsVal", "ARGMAX": "ArgMax", "BNLL": "BNLL", "HDF5_DATA": "HDF5Data",
          "HDF5_OUTPUT": "HDF5Output", "IM2COL": "Im2col", "LRN": "LRN", "MVN": "MVN", "RELU": "ReLU",
          "SOFTMAX_LOSS": "SoftmaxWithLoss", "TANH": "TanH",
          "CONVOLUTION3D": "Convolution3D", "POOLING3D": "Pooling3D", "VIDEO_DATA": "VideoData"}
SAME = frozenset(caffe_pb2.LayerParameter.DESCRIPTOR.fields_by_name)
OWN = {"type", "param", "blob_share_mode", "blobs_lr", "weight_decay", "layer"}  # fields that changed


def upgrade_v1(net: Any) -> Any:
    """A new NetParameter whose ``layers`` have become ``layer``."""
    new = type(net)()
    new.CopyFrom(net)
    new.ClearField("layers")
    for old in net.layers:
        _upgrade_v1_layer(old, new.layer.add())
    return new


def _upgrade_v1_layer(old: Any, layer: Any) -> None:
    for field, value in old.ListFields():
        if field.name in SAME - OWN:
            put(layer, field.name, value)
    enum = old.DESCRIPTOR.fields_by_name["type"].enum_type
    layer.type = V1_TYPES[enum.values_by_number[old.type].name]
    for values, name in ((old.param, "name"), (old.blob_share_mode, "share_mode"), (old.blobs_lr, "lr_mult"),
                         (old.weight_decay, "decay_mult")):
        for index, value in enumerate(values):
            while len(layer.param) <= index:
                layer.param.add()
            setattr(layer.param[index], name, value)
