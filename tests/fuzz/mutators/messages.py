"""Prototxt, changed as its messages say: fields set to numbers at the edges, left out, doubled, and added."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from scaffe.proto.raw_strings import is_repeated
from tests.fuzz.mutators.numbers import FLOATS, whole

REALS = {FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}
BITS = {FieldDescriptor.CPPTYPE_INT32: (31, True), FieldDescriptor.CPPTYPE_INT64: (63, True),
        FieldDescriptor.CPPTYPE_UINT32: (32, False), FieldDescriptor.CPPTYPE_UINT64: (64, False)}
SIGNS = ["", "{", "}", ":", "\x00", "\n", '"', "#", "<", "[", "\\", "-", "'", "é"]
STRINGS = ["", "data", "a" * 300, "label", "/dev/zero", "ä\n\x00", "nowhere", ".."]


def mutate(rng: random.Random, text: bytes, kind: Any) -> bytes:
    """A few fields of a message changed; the text itself is damaged where it is none."""
    try:
        message = text_format.Parse(text.decode(), kind())
    except (text_format.ParseError, UnicodeDecodeError, RecursionError):
        return spoil(rng, text)
    for _ in range(rng.choice([1, 1, 2, 4])):
        _change(rng, message)
    return text_format.MessageToString(message).encode()


def spoil(rng: random.Random, text: bytes) -> bytes:
    """Any text damaged without regard to what it says: words left out, doubled, replaced, nested without end."""
    tokens = text.split(b" ")
    for _ in range(rng.choice([1, 1, 3])):
        at = rng.randrange(len(tokens))
        nested = rng.choice(["layer {", "[", "{", "("]) * rng.choice([1, 3, 20000])
        word = rng.choice([*SIGNS, str(whole(rng)), rng.choice(FLOATS), nested, "9" * 5000])
        tokens[at] = rng.choice([word.encode(), tokens[rng.randrange(len(tokens))], tokens[at] * 2])
    return b" ".join(tokens)


def _change(rng: random.Random, message: Any) -> None:
    inner = [value for field, value in message.ListFields() if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE]
    inner = [one for value in inner for one in ([value] if hasattr(value, "DESCRIPTOR") else value)]
    if inner and rng.random() < 0.8:
        _change(rng, rng.choice(inner))
        return
    given = [field for field, _ in message.ListFields()]
    field = rng.choice(given if given and rng.random() < 0.6 else message.DESCRIPTOR.fields)
    if not is_repeated(field):
        if rng.random() < 0.2:
            message.ClearField(field.name)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, _value(rng, field))
        return
    values = getattr(message, field.name)
    if len(values) and rng.random() < 0.4:
        del values[rng.randrange(len(values))]
    elif field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        values.append(_value(rng, field))
    elif len(values):
        values.add().CopyFrom(rng.choice(values))
    else:
        values.add()


def _value(rng: random.Random, field: Any) -> Any:
    if field.cpp_type in BITS:
        bits, signed = BITS[field.cpp_type]
        number = whole(rng) & (1 << bits) - 1
        return -number if signed and rng.random() < 0.3 else number
    if field.cpp_type in REALS:
        return float(rng.choice(FLOATS))
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    text = rng.choice(STRINGS)
    return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
