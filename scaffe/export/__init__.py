"""A net as an ONNX model, by a converter for each layer type."""

from __future__ import annotations

from typing import Any

from scaffe.errors import UserError
from scaffe.export import rarer_converters  # noqa: F401 - for what it registers
from scaffe.export.converters import CONVERTERS
from scaffe.export.graph import Graph
from scaffe.nets.net import Net


def onnx_model(net: Net) -> Any:
    """A net of the TEST phase as an ONNX ModelProto, with its parameters and its inputs' current shapes.

    Raises:
        UserError: a layer has no ONNX form (losses and data layers have none), the net has no inputs, or the package
            onnx is not installed.
    """
    graph = Graph(net)
    if not net.input_names:
        raise UserError("the net has no inputs (type Input); a deploy net was expected")
    for node in net.nodes:
        if node.param.type not in CONVERTERS:
            raise UserError(f"layer {node.name!r} ({node.param.type}) has no ONNX form; known: "
                            f"{', '.join(sorted(CONVERTERS))}")
        CONVERTERS[node.param.type](graph, node)
    return graph.finish()
