"""Numbers and strings as C++ spells them, in the spelling of the same length that Python's text format takes."""

from __future__ import annotations

import re
import sys

from google.protobuf.descriptor import FieldDescriptor as Field

from scaffe.proto.byte_text import bytes_of, text_of

ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[0-7]{1,3}|\\[xX][0-9a-fA-F]{1,2}"
                    r"|\\U.{8}|\\u.{4}|\\.|[^\\]+", re.DOTALL)
STRING_OR_COMMENT = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|#[^\n]*")
NOT_ASCII = re.compile("\\\\[2-7uU]|\\\\[xX][89a-fA-F]|[\uef80-\uefff]")  # escapes; bytes that were no UTF-8
SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
FLOATS = {Field.TYPE_FLOAT, Field.TYPE_DOUBLE}
UNSIGNED = {Field.TYPE_UINT32, Field.TYPE_UINT64}
MOST_OF_AN_ENUM = 2**31 - 1


def python_strings(tokens: str, is_bytes: bool = False) -> str:
    r"""Strings with their quotes, one or several side by side, with space and comments between, which are one string.

    Python knows neither ``\?`` nor ``\X41``, takes no octal number above ``\377``, of which C++ keeps the low byte,
    does not join two surrogates, and refuses bytes that are no UTF-8; these become characters (``byte_text``). What is
    shorter then is filled up with spaces behind the string. Bytes that are not ASCII make a field of bytes longer.

    Args:
        tokens: the strings; raw bytes that are no UTF-8 are ``byte_text``'s characters already.
        is_bytes: whether the field holds bytes.
    """
    if not NOT_ASCII.search(tokens):
        return tokens if "\\" not in tokens else ESCAPE.sub(_python_escape, tokens).ljust(len(tokens))
    strings = ["".join(match.groups("")) for match in STRING_OR_COMMENT.finditer(tokens)]
    raw = b"".join(_raw(match) for string in strings for match in ESCAPE.finditer(string))
    content = "".join(f"\\{byte:03o}" for byte in raw) if is_bytes else _escaped(text_of(raw), tokens[0])
    n_lines = tokens.count("\n")
    return (tokens[0] + content + tokens[0]).ljust(len(tokens) - n_lines) + "\n" * n_lines


def _python_escape(match: re.Match[str]) -> str:
    escape = match[0]
    return "?" if escape == r"\?" else rf"\x{escape[2:]}" if escape[:2] == r"\X" else escape


def _raw(match: re.Match[str]) -> bytes:
    """What a piece of a string stands for, as protobuf's C++ reads it (io/tokenizer.cc, ParseStringAppend)."""
    piece = match[0]
    if piece[0] != "\\":
        return bytes_of(piece)
    kind, digits = piece[1], piece[2:]
    if kind in "01234567":
        return bytes([int(piece[1:], 8) & 0xFF])
    if kind in "xX":
        return bytes([int(digits, 16)])
    if kind not in "uU":
        return bytes([SIMPLE.get(kind, ord(kind))])
    if len(piece) == len(r"\ud83d\ude00"):
        return chr(0x10000 + ((int(piece[2:6], 16) - 0xD800) << 10) + int(piece[8:], 16) - 0xDC00).encode()
    code = int(digits, 16)
    return chr(code).encode(errors="surrogatepass") if code <= sys.maxunicode else rf"\U{code:08x}".encode()


def _escaped(text: str, quote: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace(quote, f"\\{quote}")


def python_number(token: str, sign: str, kind: int | None) -> str:
    """A number of a field.

    Truths and enums may be hexadecimal or octal in C++; floats may not, which Python checks from protobuf 6 on.

    Args:
        token: without its sign.
        sign: "-" or "".
        kind: the field's type, protobuf's number; None if it is not known.

    Raises:
        ValueError: C++ refuses it; says why.
    """
    if kind in FLOATS and token[0] == "0" and token[1:2] in set("0123456789xX"):
        raise ValueError(f"{token!r} is octal or hexadecimal; a decimal number was expected")
    if token[:2] in ("0x", "0X") or token.isdigit():
        value = int(token, 16 if token[1:2] in ("x", "X") else 8 if token[0] == "0" else 10)
        if kind in UNSIGNED and sign:
            raise ValueError(f"'-{token}' has a sign; a whole number that is not below 0 was expected")
        if kind == Field.TYPE_ENUM and value > MOST_OF_AN_ENUM:
            raise ValueError(f"{token!r} is out of range")
        if kind in (Field.TYPE_ENUM, Field.TYPE_BOOL):
            return str(value).ljust(len(token))
    return token if token[:2] in ("0x", "0X") else token.replace("F", "f")
