"""Escapes text from files (names of layers, outputs and threads, notes) for pages and pictures."""

from __future__ import annotations

import re
from html import escape

from scaffe.proto.byte_text import shown

FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"  # not in XML
                       "\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # directions
MOST_CHARACTERS = 300  # of a name


def escaped(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""Text for HTML and SVG, in elements and quoted attributes. Characters that XML forbids, or that change the
    direction of text, are shown as ``\x07`` or ``\u202e``; a text of more than ``most`` characters lacks its middle."""
    text = shown(text)
    if len(text) > most:
        text = f"{text[:most // 2]} ... {text[-most // 2:]}"
    return escape(FORBIDDEN.sub(lambda match: ascii(match[0])[1:-1], text))
