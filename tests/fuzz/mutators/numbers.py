"""The numbers at which readers break."""

from __future__ import annotations

import random

EDGES = sorted({sign * ((1 << bits) + off) for bits in (0, 7, 8, 15, 16, 24, 31, 32, 40, 52, 62, 63, 64)
                for off in (-1, 0, 1) for sign in (1, -1)})
FLOATS = ["nan", "inf", "-inf", "0.0", "-0.0", "1e-45", "3e38", "-3e38", "1e300", "0.5", "-1", "1e10"]


def whole(rng: random.Random, most_bits: int = 65) -> int:
    """A whole number: an edge, a small one, or any."""
    kind = rng.randrange(3)
    if kind == 0:
        return rng.choice([edge for edge in EDGES if abs(edge).bit_length() <= most_bits])
    return rng.randrange(-3, 300) if kind == 1 else rng.getrandbits(rng.randrange(1, most_bits))


def packed(rng: random.Random, n_bytes: int) -> bytes:
    """A number as so many bytes, in either order."""
    return (whole(rng) & (1 << 8 * n_bytes) - 1).to_bytes(n_bytes, rng.choice(["little", "big"]))


def varint(value: int) -> bytes:
    """Protobuf's and LevelDB's base-128 number, of at most 10 bytes."""
    value &= (1 << 70) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
