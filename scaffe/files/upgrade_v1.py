"""Nets of ``layers`` with enum types (2014) into ``layer`` with names."""

from __future__ import annotations

from typing import Any

from scaffe.files.message_fields import put
from scaffe.proto import caffe_pb2

TYPES = {name: name.title().replace("_", "") for name in (
    "ACCURACY", "CONCAT", "CONTRASTIVE_LOSS", "CONVOLUTION", "DECONVOLUTION", "DATA", "DROPOUT", "DUMMY_DATA",
    "EUCLIDEAN_LOSS", "ELTWISE", "EXP", "FLATTEN", "HINGE_LOSS", "IMAGE_DATA", "INFOGAIN_LOSS", "INNER_PRODUCT",
    "MEMORY_DATA", "MULTINOMIAL_LOGISTIC_LOSS", "POOLING", "POWER", "SIGMOID", "SIGMOID_CROSS_ENTROPY_LOSS", "SILENCE",
    "SLICE", "SOFTMAX", "SPLIT", "THRESHOLD", "WINDOW_DATA")}
TYPES |= {"NONE": "", "ABSVAL": "AbsVal", "ARGMAX": "ArgMax", "BNLL": "BNLL", "HDF5_DATA": "HDF5Data",
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
        _upgrade_layer(old, new.layer.add())
    return new


def _upgrade_layer(old: Any, layer: Any) -> None:
    for field, value in old.ListFields():
        if field.name in SAME - OWN:
            put(layer, field.name, value)
    enum = old.DESCRIPTOR.fields_by_name["type"].enum_type
    layer.type = TYPES[enum.values_by_number[old.type].name]
    for values, name in ((old.param, "name"), (old.blob_share_mode, "share_mode"), (old.blobs_lr, "lr_mult"),
                         (old.weight_decay, "decay_mult")):
        for index, value in enumerate(values):
            while len(layer.param) <= index:
                layer.param.add()
            setattr(layer.param[index], name, value)

