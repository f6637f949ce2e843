"""Respells numbers and strings of the text format, as C++'s parser reads them, for Python's, in the same length."""

from __future__ import annotations

import re
import sys
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

from scaffe.proto.byte_text import MAPPED, bytes_of, text_of

SPELT = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[0-7]{1,3}|\\[xX][0-9a-fA-F]{1,2}"
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
        return tokens if "\\" not in tokens else SPELT.sub(_python_escape, tokens).ljust(len(tokens))
    strings = ["".join(match.groups("")) for match in STRING_OR_COMMENT.finditer(tokens)]
    raw = b"".join(_raw(match) for string in strings for match in SPELT.finditer(string))
    content = "".join(f"\\{byte:03o}" for byte in raw) if is_bytes else text_of(raw).replace("\\", r"\\").replace(
        "\n", r"\n").replace(tokens[0], f"\\{tokens[0]}")
    n_lines = tokens.count("\n")
    return (tokens[0] + content + tokens[0]).ljust(len(tokens) - n_lines) + "\n" * n_lines


def _python_escape(match: re.Match[str]) -> str:
    escape = match[0]
    return "?" if escape == r"\?" else rf"\x{escape[2:]}" if escape[:2] == r"\X" else escape


def _raw(match: re.Match[str]) -> bytes:
    """The bytes of a piece of a string, as protobuf's C++ reads it (io/tokenizer.cc, ParseStringAppend)."""
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


def python_number(token: str, sign: str, kind: int | None) -> str:
    """A number of a field, without its sign, which is "-" or "". Raises ValueError, which says why C++ refuses it.

    Truths and enums may be hexadecimal or octal in C++; floats may not, which Python checks from protobuf 6 on.
    ``kind`` is the field's type, protobuf's number; None if it is not known.
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


SPACE = r"[ \n\t\r\v\f]+"
COMMENT = r"\#[^\n]*"
IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
NUMBER = r"(?:0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)"
ESCAPE = r"\\(?:[abfnrtv\\?'\"]|[0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U00[01][0-9a-fA-F]{5})"
STRING = rf"\"(?:[^\"\\\n]|{ESCAPE})*\"|'(?:[^'\\\n]|{ESCAPE})*'"
MARK = "\ufeff"  # a byte-order mark, as Windows' editors begin UTF-8 files
OPENING, CLOSING = "{<", "}>"
SYMBOL = r"[-:{}<>\[\],;.]"
TOKEN = re.compile(f"(?P<space>{SPACE})|(?P<comment>{COMMENT})|(?P<identifier>{IDENTIFIER})|(?P<number>{NUMBER})"
                   f"|(?P<string>(?:{STRING})(?:(?:{SPACE}|{COMMENT})*+(?:{STRING}))*+)|(?P<symbol>{SYMBOL})")
FLOAT_WITH_F = re.compile(r"(?i:inf|infinity|nan)f")  # Python's parser takes them
OCTAL = re.compile(r"0[0-7]+")
IN_A_NUMBER = re.compile(r"[A-Za-z0-9_.]+")


class TokenError(ValueError):
    """Raised for text that is no token, with its place.

    Attributes:
        said: what was expected and what came.
        line, column: both from 1.
    """

    def __init__(self, said: str, text: str, at: int) -> None:
        super().__init__(said)
        self.said = said
        self.line, self.column = text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def conform(text: str, message: Any = None) -> str:
    """Respell a text for Python's parser, in the same length.

    Args:
        text: of a message.
        message: its descriptor; if None, numbers whose spelling depends on the field's type stay as they are.

    Raises:
        TokenError: C++ would refuse it.
    """
    parts: list[str] = []
    at, sign, place = 0, "", Place(message)
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise TokenError(_explain(text, at), text, at)
        token, at = match[0], match.end()
        if match["space"] or match["comment"]:
            parts.append(token)
        elif token == "-" and not sign:
            sign = token
        else:
            parts += [sign, _respelled(match, text, sign, place.field)]  # directly before its number
            sign = ""
            place.pass_over(match)
    return "".join((*parts, sign))


class Place:
    """The field of which the next token may be the value, in a text of a message of this descriptor (None: unknown).

    Attributes:
        field: its descriptor; None if there is none, or none of that name.
    """

    def __init__(self, message: Any) -> None:
        self._message, self.field = message, None
        self._outer: list[tuple[Any, Any]] = []

    def pass_over(self, match: re.Match[str]) -> None:
        """Advance past a token."""
        token = match[0]
        if match["identifier"] and self._message is not None:
            self.field = self._message.fields_by_name.get(token, self.field)
        elif token in OPENING:
            self._outer.append((self._message, self.field))
            self._message = None if self.field is None else self.field.message_type
        elif token in CLOSING and self._outer:
            self._message, self.field = self._outer.pop()


def _respelled(match: re.Match[str], text: str, sign: str, field: Any) -> str:
    """A token in the spelling of Python's parser."""
    token, start = match[0], match.start()
    if match["identifier"] and FLOAT_WITH_F.fullmatch(token):
        raise TokenError(f"{token!r} is no number", text, start)
    if match["string"]:
        return python_strings(token, field is not None and field.type == Field.TYPE_BYTES)
    if not match["number"]:
        return token
    _check_number(text, start, match.end())
    try:
        return python_number(token, sign, None if field is None else field.type)
    except ValueError as error:
        raise TokenError(str(error), text, start) from error


def _check_number(text: str, start: int, end: int) -> None:
    token, rest = text[start:end], IN_A_NUMBER.match(text, end)
    if rest:
        raise TokenError(f"{token + rest[0]!r} is no number; between a number and a name there must be a space", text,
                         start)
    if token.isdigit() and len(token) > 1 and token[0] == "0" and not OCTAL.fullmatch(token):
        raise TokenError(f"{token!r} begins with 0, which makes it octal, but has a digit above 7", text, start)


def _explain(text: str, at: int) -> str:
    if text[at] in "\"'":
        string = re.compile(rf"(?:[^\\\n{text[at]}]|{ESCAPE})*").match(text, at + 1)
        end = string.end() if string else at
        if text[end : end + 1] == "\\":
            return f"{text[end:end + 2]!r} in a string is no escape; a backslash itself is written twice"
        return "a string is not closed on its line"
    if text[at] == MARK:
        return "begins with a byte-order mark, which Caffe refuses; save without, or take upgrade_net_proto_text"
    if MAPPED.match(text[at]):
        return f"byte 0x{bytes_of(text[at]).hex()} outside of strings and comments"
    if not text[at].isascii():
        return f"{text[at]!r} (U+{ord(text[at]):04X}) outside of strings and comments"
    return f"{text[at]!r} is no part of the text format" + ("; a comment begins with #" if text[at] in "/%" else "")
