"""An ONNX graph in the making: tensors by blob name, nodes, constants. Needs the package onnx, imported when used."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import UserError
from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node

OPSET, IR_VERSION = 13, 8  # old enough for any runtime of today


class Graph:
    """Collects nodes. A blob that layers write in place gets one tensor per write; the last one has the blob's name.

    Args:
        net: the net to export, for its blobs, inputs and outputs.

    Raises:
        UserError: onnx is not installed.
    """

    def __init__(self, net: Net) -> None:
        try:
            self.onnx: Any = importlib.import_module("onnx")
        except ImportError as error:
            raise UserError("export-onnx needs the package onnx: pip install onnx") from error
        self.net = net
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._left = Counter(name for node in net.nodes for name in node.top_names)
        self._tensors: dict[str, str] = {}
        self._n_made = 0

    def bottoms(self, node: Node) -> list[str]:
        """The tensors of a layer's bottoms."""
        return [self._tensors[name] for name in node.bottom_names]

    def top(self, node: Node) -> str:
        """A new tensor for a layer's first top."""
        return self.define(node.top_names[0])

    def alias(self, blob: str, tensor: str) -> None:
        """Make a blob an existing tensor (Split, Dropout); ``finish`` gives outputs a tensor of their own."""
        self._left[blob] -= 1
        self._tensors[blob] = tensor

    def define(self, blob: str) -> str:
        """A new tensor for a blob about to be written."""
        self._left[blob] -= 1
        is_last = not self._left[blob] and blob not in self.net.input_names
        self._tensors[blob] = blob if is_last else f"{blob}/{self._left[blob]}"
        return self._tensors[blob]

    def add(self, operator: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node; an output without a name gets a new one. Returns the output's name.

        TopK's outputs are called as it is, with /0 and /1 behind.
        """
        self._n_made += 1
        output = output or f"{operator.lower()}/{self._n_made}"
        outputs = [f"{output}/{i}" for i in range(2)] if operator == "TopK" else [output]
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), outputs, **attributes))
        return output

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """Add a constant tensor. Returns its name."""
        name = f"constant/{len(self.constants)}"
        array = np.ascontiguousarray(values, dtype).reshape(np.shape(values))
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def finish(self) -> Any:
        """The checked model. Raises UserError for a net without outputs of its own."""
        helper, float32 = self.onnx.helper, self.onnx.TensorProto.FLOAT
        both = set(self.net.output_names) & set(self.net.input_names)
        if both or not self.net.output_names:
            raise UserError("the net has no outputs" if not both else
                            f"blob {min(both)!r} is an input and, changed in place, an output; give it another name")
        for name in self.net.output_names:
            if self._tensors[name] != name:
                self.add("Identity", [self._tensors[name]], name)

        def info(name: str) -> Any:
            return helper.make_tensor_value_info(name, float32, list(self.net.blobs[name].shape))

        graph = helper.make_graph(self.nodes, self.net.name or "net", [info(n) for n in self.net.input_names],
                                  [info(n) for n in self.net.output_names], self.constants)
        model = helper.make_model(graph, producer_name="scaffe", ir_version=IR_VERSION,
                                  opset_imports=[helper.make_opsetid("", OPSET)])
        self.onnx.checker.check_model(model)
        return model
