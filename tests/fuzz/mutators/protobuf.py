"""Protobuf's wire form taken apart and put together with one field changed, the lengths around it right."""

from __future__ import annotations

import random

from tests.fuzz.mutators.numbers import varint, whole

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
N_BYTES = {FIXED64: 8, FIXED32: 4}
Field = tuple[int, int, bytes]  # number, kind, content
MOST_DEPTH = 6


def mutate(rng: random.Random, content: bytes) -> bytes:
    """One field of the message, or of one inside it, is changed; any bytes where it is no message."""
    return _mutated(rng, content, 0)


def _mutated(rng: random.Random, content: bytes, depth: int) -> bytes:
    fields = _fields(content)
    if not fields:
        return content[:rng.randrange(len(content) + 1)] + rng.randbytes(rng.randrange(9))
    at = rng.randrange(len(fields))
    number, kind, inner = fields[at]
    if kind == BYTES and depth < MOST_DEPTH and rng.random() < 0.75 and _fields(inner):
        fields[at] = number, kind, _mutated(rng, inner, depth + 1)
        return b"".join(map(_packed, fields))
    change = rng.randrange(8)
    if change == 0:
        del fields[at]
    elif change == 1:
        fields[at:at] = [fields[at]] * rng.choice([1, 2, 1000])
    elif change == 2:
        fields.insert(rng.randrange(len(fields) + 1), fields[at])
    elif change == 3:
        fields[at] = rng.choice([number + 1, 1, 5, 7, 100, rng.randrange(1, 1 << 29)]), kind, inner
    elif change == 4:
        fields[at] = number, VARINT, varint(whole(rng))
    elif change == 5:
        fields[at] = number, rng.choice([FIXED64, FIXED32]), rng.randbytes(8)
    elif change == 6:
        fields[at] = number, BYTES, inner[:rng.randrange(len(inner) + 1)] + rng.randbytes(rng.choice([0, 0, 1, 3]))
    else:  # a length that is not true
        head = varint(number << 3 | BYTES) + varint(whole(rng))
        return b"".join(map(_packed, fields[:at])) + head + inner + b"".join(map(_packed, fields[at + 1:]))
    return b"".join(map(_packed, fields))


def _packed(field: Field) -> bytes:
    number, kind, content = field
    head = varint(number << 3 | kind)
    if kind == BYTES:
        return head + varint(len(content)) + content
    return head + (content[:N_BYTES[kind]].ljust(N_BYTES[kind], b"\0") if kind in N_BYTES else content)


def _fields(content: bytes) -> list[Field]:
    """The fields of a message; none where it is not one."""
    fields: list[Field] = []
    at = 0
    while at < len(content):
        key, at = _number(content, at)
        number, kind = key >> 3, key & 7
        start = at
        if kind == VARINT:
            _, at = _number(content, at)
        elif kind == BYTES:
            n_bytes, start = _number(content, at)
            at = start + n_bytes
        elif kind in N_BYTES:
            at += N_BYTES[kind]
        else:
            return []
        if at > len(content) or number == 0:
            return []
        fields.append((number, kind, content[start:at]))
    return fields


def _number(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content):
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    return value, len(content) + 1
