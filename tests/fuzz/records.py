"""Datum records of many kinds, encoded by protobuf."""

from __future__ import annotations

import numpy as np

from scaffe.proto import caffe_pb2


def datums(n_records: int, n_bytes: int = 0) -> list[bytes]:
    """Pixels, floats packed and not, and image files; each at least about n_bytes long."""
    rng = np.random.default_rng(n_bytes)
    side = max(4, int((n_bytes / 3) ** 0.5))
    found = []
    for i in range(n_records):
        message = caffe_pb2.Datum(channels=3, height=side, width=side, label=i)
        if i % 3 == 1:
            message.height = message.width = 4
            message.float_data.extend(rng.random(48).tolist())
        elif i % 3 == 2:
            message.encoded = True
            message.data = png(rng.integers(0, 255, (side, side, 3), np.uint8))
        else:
            message.data = rng.integers(0, 255, 3 * side * side, np.uint8).tobytes()
        record = message.SerializeToString()
        if i % 6 == 4:  # packed, as other writers do
            message.ClearField("float_data")
            record = message.SerializeToString() + b"\x32\xc0\x01" + rng.random(48, np.float32).tobytes()
        found.append(record)
    return found


def png(image: np.ndarray) -> bytes:
    """A PNG file."""
    import cv2

    return bytes(cv2.imencode(".png", image)[1])
