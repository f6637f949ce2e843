"""Strings of messages that are not UTF-8, written and read by protobuf's wire format."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

from scaffe.proto.byte_text import bytes_of, text_of


def varint(number: int) -> bytes:
    """A number in protobuf's variable-length form."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def delimited(tag: bytes, n_bytes: int) -> bytes:
    """The tag and length of a length-delimited field."""
    return tag + varint(n_bytes)


def is_repeated(field: Any) -> bool:
    """Whether a field of a descriptor holds any number of values; protobuf before 6 says so by its label alone."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


_MAPPED = re.compile(rb"\xee[\xbe\xbf][\x80-\xbf]")  # U+EF80 to U+EFFF
DELIMITED = 2


def wire_form(message: Any) -> bytes:
    """A message's bytes, its strings as they were in the file that it came from."""
    raw: bytes = message.SerializeToString()
    if not _MAPPED.search(raw):
        return raw
    copy = type(message)()
    copy.CopyFrom(message)
    _for_strings(copy, _put_bytes)
    return bytes(copy.SerializeToString())


def hold_text(message: Any) -> None:
    """Convert all strings of a message that was parsed from its wire form to text, in place."""
    _for_strings(message, _put_text)


def _for_strings(message: Any, change: Callable[[Any, Any, Any], None]) -> None:
    """Calls ``change(message, field, value)`` for every string field that is set, in the messages inside too."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if is_repeated(field) else [value]:
                _for_strings(inner, change)
        elif field.type == Field.TYPE_STRING:
            change(message, field, value)


def _put_text(message: Any, field: Any, value: Any) -> None:
    """protobuf gives a string that is no UTF-8 as bytes."""
    if is_repeated(field):
        texts = [_text(item) for item in value]
        del value[:]
        value.extend(texts)
    else:
        setattr(message, field.name, _text(value))


def _text(value: str | bytes) -> str:
    return text_of(value if isinstance(value, bytes) else value.encode())


def _put_bytes(message: Any, field: Any, value: Any) -> None:
    """By the wire form, the only way in which protobuf takes a string that is no UTF-8."""
    strings = [bytes_of(text) for text in (value if is_repeated(field) else [value])]
    tag = varint(field.number << 3 | DELIMITED)
    message.ClearField(field.name)
    message.MergeFromString(b"".join(delimited(tag, len(raw)) + raw for raw in strings))
