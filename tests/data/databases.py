"""Small databases for tests, written with the lmdb library alone."""

import lmdb
import numpy as np


def write(folder, records, **options):
    """An LMDB folder of (key, value) pairs."""
    with lmdb.open(str(folder), map_size=1 << 28, **options) as env, env.begin(write=True) as transaction:
        for key, value in records:
            transaction.put(key, value)
    return folder


def unlike_images(n, shape=(1, 4, 5), seed=0):
    """uint8 images that all differ, (n, *shape)."""
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def varint(value):
    """Protobuf's base-128 number."""
    out = b""
    while value > 127:
        out, value = out + bytes([value % 128 + 128]), value // 128
    return out + bytes([value])


def datum(image, label):
    """A Datum message of uint8 pixels, field by field after protobuf's wire format."""
    content = image.tobytes()
    numbers = b"".join(bytes([8 * field]) + varint(n) for field, n in zip((1, 2, 3), image.shape, strict=True))
    return numbers + b"\x22" + varint(len(content)) + content + b"\x28" + varint(label)
