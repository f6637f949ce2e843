"""A net's prototxt, old or a fork's, in today's form."""

from __future__ import annotations

from typing import Any

from scaffe.cli.upgrade_text import upgrade_text
from scaffe.errors import UserError
from scaffe.files.repair import repair_net
from scaffe.files.upgrade_forks import scales_too
from scaffe.layers.base.layer import layer_types
from scaffe.nets import graph
from scaffe.proto import caffe_pb2
from scaffe.proto.forks import fork_of_type
from scaffe.proto.text import ProtoError, parse_text, read_text
from scaffe.proto.tokens import TokenError

GROUP = "Nets and weights"


def main(argv: list[str]) -> int:
    """``upgrade_net_proto_text OLD NEW``. Returns the exit code."""
    return upgrade_text("upgrade_net_proto_text", __doc__ or "", read_repaired, argv)


def read_repaired(path: str) -> tuple[Any, list[str]]:
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
