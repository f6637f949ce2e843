"""Bytes that are no UTF-8 in Caffe's strings.

Caffe's strings are bytes: a path in GBK, a layer's name in Latin-1. In Python a message's strings are text. So a byte
that UTF-8 cannot decode becomes one private character (U+EF80 to U+EFFF, as in MirBSD's OPTU-16), and such a character
that a file really has becomes three, one a byte: ``bytes_of(text_of(raw)) == raw`` for all bytes, and equal bytes are
equal text. Messages hold this text; files and paths have the bytes again, and people see ``\\xff``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

BASE = 0xEF00
_TO_MAP = re.compile("[\udc80-\udcff\uef80-\uefff]")  # what "surrogateescape" makes of bytes; ours
_IN_REPR = re.compile(r"\\u(?:dc|ef)([89a-f][0-9a-f])")
MAPPED = re.compile("[\uef80-\uefff]")


def text_of(raw: bytes) -> str:
    """Bytes as text for a message."""
    return _TO_MAP.sub(_one_a_byte, raw.decode(errors="surrogateescape"))


def _one_a_byte(match: re.Match[str]) -> str:
    return "".join(chr(BASE + byte) for byte in match[0].encode(errors="surrogateescape"))


def bytes_of(text: str) -> bytes:
    """The bytes of a message's text."""
    return MAPPED.sub(lambda match: chr(ord(match[0]) - BASE + 0xDC00), text).encode(errors="surrogateescape")


def path_of(text: str) -> str:
    """A message's text as the name of a file, as Python spells names (``os.fsdecode``)."""
    return os.fsdecode(bytes_of(text)) if MAPPED.search(text) else text


def text_of_path(path: str | Path) -> str:
    """The name of a file as text for a message."""
    return text_of(os.fsencode(path))


def shown(text: str) -> str:
    r"""Text for people: a byte that is no UTF-8 is ``\xff``, whether of a message or a path (``os.fsdecode``)."""
    return _IN_REPR.sub(r"\\x\1", _TO_MAP.sub(lambda match: rf"\x{ord(match[0]) & 0xFF:02x}", text))
