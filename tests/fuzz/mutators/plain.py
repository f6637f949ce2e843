"""Bytes of any format: flipped, cut, doubled, overwritten with numbers at the edges."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz.mutators.numbers import packed, varint, whole

Mutator = Callable[[random.Random, bytes], bytes]


def flip_bits(rng: random.Random, content: bytes) -> bytes:
    """One to eight bits."""
    out = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def cut_short(rng: random.Random, content: bytes) -> bytes:
    """The end is missing."""
    return content[:rng.randrange(len(content))]


def write_number(rng: random.Random, content: bytes) -> bytes:
    """A number over what was there; more often where bytes are not zero."""
    at = _place(rng, content)
    number = packed(rng, rng.choice([1, 2, 4, 8]))
    return content[:at] + number + content[at + len(number):]


def write_varint(rng: random.Random, content: bytes) -> bytes:
    """A base-128 number over one byte or more."""
    at, number = _place(rng, content), varint(whole(rng))
    return content[:at] + number + content[at + rng.choice([1, len(number)]):]


def move_piece(rng: random.Random, content: bytes) -> bytes:
    """A piece is left out, doubled, repeated, put elsewhere, or made zeros or noise."""
    start = _place(rng, content)
    end = min(len(content), start + (1 << rng.randrange(12)))
    piece = content[start:end]
    kind = rng.randrange(5)
    if kind == 0:
        return content[:start] + content[end:]
    if kind == 1:
        return content[:start] + piece * rng.choice([2, 3, 50]) + content[end:]
    if kind == 2:
        at = _place(rng, content)
        return content[:at] + piece + content[at + len(piece):]
    return content[:start] + (bytes(len(piece)) if kind == 3 else rng.randbytes(len(piece))) + content[end:]


def _place(rng: random.Random, content: bytes) -> int:
    """Where something is, eight times out of ten: most of a database is zeros."""
    at = rng.randrange(len(content))
    for _ in range(8):
        if content[at]:
            break
        at = rng.randrange(len(content))
    return max(0, at - rng.randrange(4))


ALL: list[Mutator] = [flip_bits, cut_short, write_number, write_varint, move_piece]
