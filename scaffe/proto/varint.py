"""Numbers and heads of fields in protobuf's wire format."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """A number in protobuf's variable-length form."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def delimited(tag: bytes, n_bytes: int) -> bytes:
    """The head of a length-delimited field."""
    return tag + varint(n_bytes)
