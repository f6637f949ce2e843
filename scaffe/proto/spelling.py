"""Numbers and strings as C++ spells them, in the spelling of the same length that Python's text format takes."""

from __future__ import annotations

import re

from google.protobuf.descriptor import FieldDescriptor as Field

ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[0-7]{1,3}|\\U.{8}|\\u.{4}|\\.")
UNSIGNED = {Field.TYPE_UINT32, Field.TYPE_UINT64}
MOST_OF_AN_ENUM = 2**31 - 1


def python_string(token: str) -> str:
    """A string with its quotes.

    Python knows neither ``\\?`` nor ``\\X41``, takes no octal number above ``\\377``, of which C++ keeps the low byte,
    and does not join two surrogates. What is shorter then is filled up with spaces behind the string.
    """
    return ESCAPE.sub(_python_escape, token).ljust(len(token))


def _python_escape(match: re.Match[str]) -> str:
    escape = match[0]
    if escape == r"\?":
        return "?"
    if escape[1] == "X":
        return rf"\x{escape[2:]}"
    if escape[1] in "01234567" and int(escape[1:], 8) > 0o377:
        return rf"\{int(escape[1:], 8) & 0o377:03o}"
    if len(escape) == len(r"\ud83d\ude00"):
        high, low = int(escape[2:6], 16), int(escape[8:], 16)
        return rf"\U{0x10000 + ((high - 0xD800) << 10) + low - 0xDC00:08x}"
    return escape


def python_number(token: str, sign: str, kind: int | None) -> str:
    """A number of a field.

    Truths and enums may be hexadecimal or octal in C++.

    Args:
        token: without its sign.
        sign: "-" or "".
        kind: the field's type, protobuf's number; None if it is not known.

    Raises:
        ValueError: C++ refuses it; says why.
    """
    if token[:2] in ("0x", "0X") or token.isdigit():
        value = int(token, 16 if token[1:2] in ("x", "X") else 8 if token[0] == "0" else 10)
        if kind in UNSIGNED and sign:
            raise ValueError(f"'-{token}' has a sign; a whole number that is not below 0 was expected")
        if kind == Field.TYPE_ENUM and value > MOST_OF_AN_ENUM:
            raise ValueError(f"{token!r} is out of range")
        if kind in (Field.TYPE_ENUM, Field.TYPE_BOOL):
            return str(value).ljust(len(token))
    return token if token[:2] in ("0x", "0X") else token.replace("F", "f")
