"""The tokens of protobuf's text format as its C++ parser reads them, which Caffe uses; Python's parser is not the same.

``conform`` refuses what C++ refuses and Python takes (``+1``, ``1_000``, ``0b1``, a no-break space, ``"\\d"``), and
rewrites what C++ takes and Python refuses (``- 1``, ``1.5F``, ``"\\?"``, a truth as ``0x1``, and in ``byte_text``'s
characters a string that is no UTF-8), so that the text stays as long as it was. Source of the rules: protobuf's
io/tokenizer.cc and text_format.cc.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

from scaffe.proto.byte_text import MAPPED, bytes_of
from scaffe.proto.spelling import python_number, python_strings

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
    """Text that is no token, with its place.

    Attributes:
        said: what was expected and what came.
        line, column: both from 1.
    """

    def __init__(self, said: str, text: str, at: int) -> None:
        super().__init__(said)
        self.said = said
        self.line, self.column = text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def conform(text: str, message: Any = None) -> str:
    """The text in the spelling that Python's parser takes, of the same length.

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
    """The field of which the next token may be the value.

    Args:
        message: the descriptor of the text's message, or None.

    Attributes:
        field: its descriptor; None if there is none, or none of that name.
    """

    def __init__(self, message: Any) -> None:
        self._message, self.field = message, None
        self._outer: list[tuple[Any, Any]] = []

    def pass_over(self, match: re.Match[str]) -> None:
        """Go on behind a token."""
        token = match[0]
        if match["identifier"] and self._message is not None:
            self.field = self._message.fields_by_name.get(token, self.field)
        elif token in OPENING:
            self._outer.append((self._message, self.field))
            self._message = None if self.field is None else self.field.message_type
        elif token in CLOSING and self._outer:
            self._message, self.field = self._outer.pop()


def _respelled(match: re.Match[str], text: str, sign: str, field: Any) -> str:
    """A token as Python's parser takes it."""
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
