"""Layers' messages for the kinds that are read by a data layer."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format

from scaffe.proto import caffe_pb2


def layer(text: str) -> Any:
    """A LayerParameter."""
    return text_format.Parse(text, caffe_pb2.LayerParameter())


def draw() -> int:
    """A raw random number, always the same."""
    return 12345
