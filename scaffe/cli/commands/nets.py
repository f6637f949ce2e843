"""Commands on nets' files: upgraded to today's form, drawn, exported.

Each takes its arguments without the program's name, and returns the exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffe.atomic_files import refuse_input, write_whole
from scaffe.errors import UserError
from scaffe.files import upgrade_model, write_text
from scaffe.files.repair import repair_net
from scaffe.files.upgrade import scales_too
from scaffe.flags import Flags
from scaffe.layers.base.layer import layer_types
from scaffe.nets import graph
from scaffe.nets.setup import PHASES
from scaffe.proto import caffe_pb2
from scaffe.proto.forks import fork_of_type
from scaffe.proto.text import ProtoError, parse_text, read_text
from scaffe.proto.tokens import TokenError

if TYPE_CHECKING:
    from scaffe.nets.net import Net


def _upgrade_text(command: Callable[..., int], read: Callable[[str], tuple[Any, list[str]]],
                  argv: Sequence[str]) -> int:
    """Write the message of a file in today's form, as Caffe's tool of the command's name. Returns the exit code.

    ``read`` gives the message of a file, and lines that say what was changed to read it.
    """
    flags = Flags.of(command)
    flags.argument("old", "the prototxt")
    flags.argument("new", "the file to write")
    options = flags.parse(argv)
    message, changes = read(options.old)
    new = graph.upgraded(message, options.old)
    for change in changes:
        print(f"{options.old}: {change}")
    if new == message and not changes:
        print(f"{options.old} is in today's form already")
    write_text(options.new, new)
    print(f"Wrote upgraded {message.DESCRIPTOR.name} text proto to {options.new}")
    return 0


def upgrade_net_proto_text(argv: Sequence[str]) -> int:
    """Rewrite an old or a fork's net prototxt for today."""
    return _upgrade_text(upgrade_net_proto_text, _read_repaired, argv)


def _read_repaired(path: str) -> tuple[Any, list[str]]:
    """The NetParameter of a prototxt, and what had to be changed to read it or is not here. Raises UserError."""
    try:
        text, changes = repair_net(read_text(path), layer_types.names())
        message = parse_text(text, caffe_pb2.NetParameter, path)
    except TokenError as error:
        raise UserError(f"{path}:{error.line}:{error.column}: {error.said}") from error
    except ProtoError as error:
        raise UserError(str(error)) from error
    changes += [f"layer {layer.name!r}: its scale and bias became a Scale layer, {layer.name + '_scale'!r}"
                for layer in message.layer if scales_too(layer)]
    known = set(layer_types.names())
    changes += [f"layer {layer.name!r}: there is no layer type {layer.type!r}{fork_of_type(layer.type)}"
                for layer in graph.upgraded(message, path).layer if layer.type not in known]
    return message, changes


def upgrade_net_proto_binary(argv: Sequence[str]) -> int:
    """Rewrite a .caffemodel of any age in today's form.

    Or from and to the other kinds of files of weights.
    """
    flags = Flags.of(upgrade_net_proto_binary)
    flags.argument("old", "a .caffemodel, .caffemodel.h5 or .safetensors")
    flags.argument("new", "the file to write, of one of these kinds by its ending")
    options = flags.parse(argv)
    if not upgrade_model(options.old, options.new):
        print(f"{options.old} is in today's form already")
    print(f"Wrote upgraded NetParameter binary proto to {options.new}")
    return 0


def upgrade_solver_proto_text(argv: Sequence[str]) -> int:
    """Rewrite a solver's prototxt in today's form."""
    return _upgrade_text(upgrade_solver_proto_text, lambda path: (graph.read_solver_as_written(path), []), argv)


def draw_net(argv: Sequence[str]) -> int:
    """Draw a net's prototxt as SVG or PNG.

    With the arguments of Caffe's draw_net.py; Graphviz is not needed.
    """
    from scaffe.draw import draw_net_to_file

    flags = Flags.of(draw_net)
    flags.argument("net", "the net's prototxt")
    flags.argument("picture", "the file to write: .svg, or .png (needs resvg-py)")
    flags.flag("rankdir", "LR", "which way the net runs", choices=("LR", "RL", "TB", "BT"))
    flags.flag("phase", "ALL", "the layers to draw", choices=("TRAIN", "TEST", "ALL"))
    flags.flag("display_lrm", False, "show the multipliers of learning rates")
    options = flags.parse(argv)
    refuse_input(options.picture, [options.net], UserError)
    net = graph.upgraded(graph.read_net(options.net), options.net)
    print(f"Drawing net to {options.picture}")
    draw_net_to_file(net, options.picture, options.rankdir, PHASES.get(options.phase), options.display_lrm)
    return 0


def export_onnx(argv: Sequence[str]) -> int:
    """Write a deploy net and its weights as ONNX."""
    from scaffe.export import onnx_model

    options = _export_options(export_onnx, "the .onnx file to write", argv)
    content = onnx_model(_loaded(options)).SerializeToString()
    write_whole(options.model, content, UserError)
    print(f"Wrote {options.model}, {len(content):,} bytes")
    return 0


def export_torch(argv: Sequence[str]) -> int:
    """Write a deploy net and its weights for PyTorch.

    It writes a module's file, and a .safetensors file of that name. To use them, PyTorch and safetensors are enough.
    """
    from scaffe.export.torch_file import export_torch as write

    options = _export_options(export_torch, "the module's .py file to write", argv)
    refuse_input(Path(options.model).with_suffix(".safetensors"), [options.net, options.weights], UserError)
    print(f"Wrote {options.model} and {write(_loaded(options), options.model)}")
    return 0


def _export_options(command: Callable[..., int], model: str, argv: Sequence[str]) -> Any:
    """The options of an export, whose output is described by ``model``."""
    from scaffe.nets.setup import add_state_flags

    flags = Flags.of(command)
    flags.argument("net", "the deploy net's prototxt")
    flags.argument("weights", "trained weights, .caffemodel or .safetensors")
    flags.argument("model", model)
    add_state_flags(flags)
    options = flags.parse(argv)
    refuse_input(options.model, [options.net, options.weights], UserError)
    return options


def _loaded(options: Any) -> Net:
    """The net of an export's options, with its weights."""
    from scaffe.data.feeds.layer_feed import Share
    from scaffe.nets.devices import load_kernels
    from scaffe.nets.setup import Selection, net_from_file
    from scaffe.nets.weights import load_weights

    net = net_from_file(options.net, Selection.of(options, "TEST"), load_kernels(1), Share())
    load_weights(net, options.weights)
    return net
