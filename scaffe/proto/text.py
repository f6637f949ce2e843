"""Reads prototxt files as messages; errors name file, line, column and the nearest known name."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from scaffe.atomic_files import replacing
from scaffe.errors import ExpectedError, UserError
from scaffe.input_files import read_input
from scaffe.proto.byte_text import bytes_of, text_of
from scaffe.proto.forks import fork_of_field, fork_of_type
from scaffe.proto.raw_strings import hold_text
from scaffe.proto.tokens import TokenError, conform

MOST_SAID = 500  # characters of what is wrong, which may quote the file
BINARY_ENDINGS = (".binaryproto", ".caffemodel", ".pb")


class ProtoError(ExpectedError):
    """One line: the file, where in it, what was expected and what came."""


def read_message(path: str | Path, kind: type) -> Any:
    """A message from a prototxt file, or from a binary one when the name ends like one.

    Raises:
        ProtoError: no such file, not text, or a mistake in it.
    """
    raw = read_input(path, ProtoError)
    if str(path).endswith(BINARY_ENDINGS):
        return parse_binary(raw, kind, str(path))
    return parse_text(_decoded(raw, path), kind, str(path))


def read_text(path: str | Path) -> str:
    """The text of a prototxt file. Raises ProtoError: no such file, or not text."""
    return _decoded(read_input(path, ProtoError), path)


def _decoded(raw: bytes, path: str | Path) -> str:
    if b"\0" in raw:
        raise ProtoError(f"{path}: not a text file (byte {raw.index(0)} is zero); a prototxt was expected")
    return text_of(raw)


def parse_text(text: str, kind: Any, source: str = "prototxt") -> Any:
    """A message from text. Raises ProtoError."""
    try:
        message = text_format.Parse(conform(text, kind.DESCRIPTOR), kind())
    except TokenError as error:
        place = f"{source}:{error.line}:{error.column}"
        raise ProtoError(f"{place}: {error.said}{_inside(text, error.line)}") from error
    except text_format.ParseError as error:
        raise ProtoError(_explain(error, text, kind, source)) from error
    missing = message.FindInitializationErrors()
    if missing:
        raise ProtoError(f"{source}: {missing[0]} is required")
    return message


def parse_binary(raw: bytes, kind: type, source: str) -> Any:
    """A message from its wire form. Raises ProtoError."""
    message = kind()
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        name = message.DESCRIPTOR.name
        raise ProtoError(f"{source}: truncated, or not a binary {name} of {len(raw)} bytes") from error
    hold_text(message)
    return message


def _explain(error: text_format.ParseError, text: str, kind: Any, source: str) -> str:
    line, column = error.GetLine(), error.GetColumn()
    said = re.sub(r"^\d+:\d+ : ", "", " ".join(str(error).split()))
    match = re.search(r'[Mm]essage type "([\w.]+)" has no field named "(\w+)"', said)
    if match:
        said = _unknown_field(match[1], match[2], kind)
    match = re.search(r'[Ee]num type "([\w.]+)" has no value (?:named|with number) "?(\w+)"?', said)
    if match:
        fork = fork_of_type(match[2]) if match[1].endswith(".LayerType") else ""
        fork += fork and "; upgrade_net_proto_text writes 'layers' as 'layer', whose types are strings"
        said = f"{match[2]!r} is no value of {match[1].split('.')[-1]}{fork or _near_value(kind, match[1], match[2])}"
    match = re.search(r'type "caffe\.(\w+)" should not have multiple "(\w+)" fields', said)
    if match:
        said = f"{match[1]} is given {match[2]!r} twice"
    said = said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]}..."
    where = ":".join(str(n) for n in (source, line, column) if n is not None)
    return f"{where}: {said}{_inside(text, line)}"


def _unknown_field(message: str, field: str, kind: Any) -> str:
    descriptor = kind.DESCRIPTOR.file.message_types_by_name.get(message.split(".")[-1])
    near = difflib.get_close_matches(field, [f.name for f in descriptor.fields], 1) if descriptor else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{message.split('.')[-1]} has no field {field!r}{fork_of_field(field) or hint}"


def _near_value(kind: Any, enum: str, value: str) -> str:
    *_, owner, name = ["", *enum.split(".")]
    holder = kind.DESCRIPTOR.file.message_types_by_name.get(owner)
    enums = holder.enum_types_by_name if holder else kind.DESCRIPTOR.file.enum_types_by_name
    known = [v.name for v in enums[name].values] if name in enums else []
    return f"; known: {', '.join(known)}" if known else ""


def _inside(text: str, line: int | None) -> str:
    """The layer around a line, from the nearest layer block that opens above it and its name."""
    if line is None:
        return ""
    above = text.splitlines()[: line]
    starts = [i for i, row in enumerate(above) if re.match(r"\s*layers?\s*:?\s*\{", row)]
    if not starts:
        return ""
    block = "\n".join(text.splitlines()[starts[-1]:])
    match = re.search(r"\bname\s*:\s*[\"']([^\"']+)[\"']", block)
    return f" (in layer {match[1][:MOST_SAID]!r})" if match else ""


def write_text(path: str | Path, message: Any) -> None:
    """Write a message as prototxt. Raises UserError: it cannot be written; what was there before is left."""
    with replacing(path, UserError) as file:
        file.write(bytes_of(text_format.MessageToString(message, as_utf8=True)))
