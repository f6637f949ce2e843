"""Writes messages as prototxt files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import text_format

from scaffe.atomic_files import replacing
from scaffe.errors import UserError
from scaffe.proto.byte_text import bytes_of


def write_text(path: str | Path, message: Any) -> None:
    """Write a message as prototxt. Raises UserError: it cannot be written; what was there before is left."""
    with replacing(path, UserError) as file:
        file.write(bytes_of(text_format.MessageToString(message, as_utf8=True)))
