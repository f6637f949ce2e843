"""A net as a file of PyTorch, and its weights beside it as safetensors."""

from __future__ import annotations

import textwrap
from pathlib import Path

from scaffe.atomic_files import replacing
from scaffe.errors import UserError
from scaffe.export import torch_detection, torch_rarer  # noqa: F401 - for what they register
from scaffe.export.torch_code import GLOBALS, Code, Names
from scaffe.export.torch_converters import CONVERTERS
from scaffe.files.safetensors import write_tensors
from scaffe.nets.net import Net

WIDTH, UNBROKEN = 116, "\u00a0"
FILE = '''"""{title}, a PyTorch module written by scaffe.

    import {module}
    net = {module}.load()  # with its weights, in eval mode
    {shown} = net({arguments})

{inputs}
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
{made}

    def forward(self, {arguments}):
{lines}
        return {returned}


def load(weights=Path(__file__).with_suffix(".safetensors")):
    """The net with the weights of a file, in eval mode."""
    from safetensors.torch import load_file

    net = {name}()
    net.load_state_dict(load_file(str(weights)))
    return net.eval()
{helpers}'''


def export_torch(net: Net, path: str | Path) -> Path:
    """Write a net of the TEST phase as a Python file, and its weights as the .safetensors file of that name.

    Batch norm layers with a Scale layer behind them become one. What the module returns is the output's tensor, or a
    dict of tensors by blob where there are several outputs.

    Returns:
        The weights' path.

    Raises:
        UserError: a layer has no PyTorch form (losses and data layers have none), the net has no inputs, a file cannot
            be written, or the package safetensors is not installed.
    """
    path = Path(path)
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise UserError(f"{path}: expected the name of a Python module, such as net.py")
    text, code = torch_text(net, path.stem)
    weights = path.with_suffix(".safetensors")
    with replacing(path, UserError) as file:
        file.write(text.encode())
        file.flush()
        write_tensors(weights, code.tensors, {"format": "pt", "net": net.name})
    return weights


def torch_text(net: Net, module: str) -> tuple[str, Code]:
    """The file's text for a module of that name, and what it was made of. Raises UserError as ``export_torch``."""
    if not net.input_names:
        raise UserError("the net has no inputs (type Input); a deploy net was expected")
    code = Code(net)
    for node in net.nodes:
        if node.param.type not in CONVERTERS:
            raise UserError(f"layer {node.name!r} ({node.param.type}) has no PyTorch form; known: "
                            f"{', '.join(sorted(CONVERTERS))}")
        CONVERTERS[node.param.type](code, node)
    if not net.output_names:
        raise UserError("the net has no outputs")
    outputs = {name: code.variable(name) for name in net.output_names}
    returned = next(iter(outputs.values())) if len(outputs) == 1 else (
        f"{{{', '.join(f'{name!r}: {variable}' for name, variable in outputs.items())}}}")
    shapes = (f"{code.argument(name)}: {tuple(net.blobs[name].shape)}" for name in net.input_names)
    title = " ".join(ascii(net.name or module)[1:-1].replace('"', "'").split())
    return FILE.format(
        title=title, module=module, name=Names(GLOBALS).new(net.name or "Net"), shown="outputs",
        arguments=", ".join(map(code.argument, net.input_names)), inputs=f"Inputs, as in Caffe: {'; '.join(shapes)}.",
        made=_indented(code.made or ["pass"]), lines=_indented(code.lines or ["pass"]), returned=returned,
        helpers="".join(f"\n\n{helper}" for helper in code.helpers.values())), code


def _indented(lines: list[str]) -> str:
    """Lines of a method's body; those that are too long go on in brackets."""
    return "\n".join("\n".join(textwrap.wrap(_bracketed(line), WIDTH, initial_indent=" " * 8, break_long_words=False,
                                             subsequent_indent=" " * 12, break_on_hyphens=False)) for line in lines
                     ).replace(UNBROKEN, " ")


def _bracketed(line: str) -> str:
    """A line that may be broken wherever it has a blank."""
    targets, equals, values = line.partition(" = ")
    if len(line) + 8 <= WIDTH or not equals:
        return line
    targets = f"({targets})" if "," in targets else targets
    return f"{targets}{UNBROKEN}={UNBROKEN}({values})"
