"""Caffe's ``caffe.net_spec``: nets written in Python."""

from scaffe.proto.net_spec import (
    Function,
    Layers,
    NetSpec,
    Parameters,
    Top,
    assign_proto,
    layers,
    param_name_dict,
    params,
    to_proto,
)

__all__ = ["Function", "Layers", "NetSpec", "Parameters", "Top", "assign_proto", "layers", "param_name_dict", "params",
           "to_proto"]
