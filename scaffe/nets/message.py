"""The message that describes a built net, as its prototxt would."""

from __future__ import annotations

from scaffe.nets.net import Net
from scaffe.proto import caffe_pb2


def message_of(net: Net) -> caffe_pb2.NetParameter:
    """A net's layers, those of its phase, without the Split layers that building inserts.

    Returns:
        a NetParameter in today's form; its layers have no rules of phases.
    """
    message = caffe_pb2.NetParameter(name=net.name)
    unsplit: dict[str, str] = {}
    for node in net.nodes:
        if node.param.type == "Split":
            unsplit |= dict.fromkeys(node.top_names, node.bottom_names[0])
            continue
        layer = message.layer.add()
        layer.CopyFrom(node.param)
        layer.ClearField("include")
        layer.ClearField("exclude")
        layer.bottom[:] = [unsplit.get(name, name) for name in layer.bottom]
    return message
