"""A PyTorch module in the making: its layers, the lines of its forward, the tensors of its state."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from scaffe.nets.net import Net
from scaffe.nets.net_layer import Node

MODULES_OWN = set(re.findall(r"\w+", """T_destination add_module apply bfloat16 buffers call_super_init children
compile cpu cuda double
dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu
load_state_dict modules mtia named_buffers named_children named_modules named_parameters parameters
register_backward_hook register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module
register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state
set_submodule share_memory state_dict to to_empty train training type xpu zero_grad"""))
"""Attributes of torch.nn.Module, which no layer may be called."""
GLOBALS = {"self", "torch", "nn", "F", "load", "Path", "detection_output", "suppress"}
"""What a module's code uses beside its blobs."""


class Names:
    """Identifiers, each given once."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = set(taken)

    def new(self, name: str) -> str:
        """An identifier for a name of any kind."""
        plain = re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_") or "n"
        plain = f"n{plain}" if plain[0].isdigit() else plain
        while plain in self._taken or keyword.iskeyword(plain):
            plain += "_"
        self._taken.add(plain)
        return plain


class Code:
    """Collects what makes a module of a net. A variable is called after its blob.

    Attributes:
        made: lines of ``__init__``.
        lines: lines of ``forward``.
        tensors: the state, by PyTorch's names.
        helpers: functions that the file needs, by name.
        norms: by blob, the batch norm without factors that wrote it last.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self.made: list[str] = []
        self.lines: list[str] = []
        self.tensors: dict[str, np.ndarray] = {}
        self.helpers: dict[str, str] = {}
        self.norms: dict[str, str] = {}
        self._attributes, self._names = Names(MODULES_OWN), Names(GLOBALS)
        self._variables = {name: self._names.new(name) for name in net.input_names}
        self._now = dict(self._variables)

    def argument(self, blob: str) -> str:
        """The variable of one of the net's inputs."""
        return self._variables[blob]

    def variable(self, blob: str) -> str:
        """The variable that holds a blob now."""
        return self._now[blob]

    def bottoms(self, node: Node) -> list[str]:
        """The variables of a layer's bottoms."""
        return [self._now[name] for name in node.bottom_names]

    def alias(self, blob: str, variable: str) -> None:
        """Let a blob be another's variable (Split, Dropout)."""
        self._now[blob] = variable

    def define(self, blob: str) -> str:
        """The variable of a blob that is about to be written."""
        self.norms.pop(blob, None)
        if blob not in self._variables:
            self._variables[blob] = self._names.new(blob)
        self._now[blob] = self._variables[blob]
        return self._now[blob]

    def write(self, node: Node, expression: str) -> None:
        """Add a line that gives a layer's first top its value."""
        self.lines.append(f"{self.define(node.top_names[0])} = {expression}")

    def on_host(self, array: Any) -> np.ndarray:
        """An array of the net's, on the host."""
        return np.asarray(self.net.context.kernels.to_host(array))

    def values(self, node: Node) -> list[np.ndarray]:
        """A layer's parameters, on the host, in Caffe's order."""
        return [self.on_host(blob.data) for blob in node.layer.blobs]

    def module(self, node: Node, made: str, **state: np.ndarray) -> str:
        """Give the module a layer of its own. Returns its name, with ``self``."""
        name = self._attributes.new(node.name)
        self.made.append(f"self.{name} = {made}")
        self.tensors.update({f"{name}.{key}": value for key, value in state.items()})
        return f"self.{name}"

    def parameter(self, node: Node, what: str, values: np.ndarray) -> str:
        """Give the module a parameter. Returns its name, with ``self``."""
        return self._tensor(node, what, values, lambda name, empty: f"self.{name} = nn.Parameter({empty})")

    def buffer(self, node: Node, what: str, values: np.ndarray) -> str:
        """Give the module numbers that are not learned. Returns their name, with ``self``."""
        return self._tensor(node, what, values, lambda name, empty: f"self.register_buffer({name!r}, {empty})")

    def _tensor(self, node: Node, what: str, values: np.ndarray, line: Callable[[str, str], str]) -> str:
        name = self._attributes.new(f"{node.name}_{what}")
        self.made.append(line(name, f"torch.empty({', '.join(map(str, values.shape)) or '()'})"))
        self.tensors[name] = values
        return f"self.{name}"

    def replace(self, made: str, by: str) -> None:
        """Change the line of ``__init__`` that begins so."""
        place = next(i for i, line in enumerate(self.made) if line.startswith(made))
        self.made[place] = by


def number(value: Any) -> str:
    """A float32 of a message as the shortest text that gives it back."""
    return repr(shortest(value))


def shortest(value: Any) -> float:
    """The number with the fewest digits that is a message's float32: 0.999, not 0.99900001."""
    return float(str(np.float32(value)))
