"""The text format as a tree of names and values, without a message type."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

from scaffe.proto.tokens import TokenError, conform

STRING = r"""\"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
TOKEN = re.compile(rf"[ \n\t\r\v\f]+|\#[^\n]*|(?P<text>{STRING}|[-\w.+]+|[{{}}<>\[\]:,;])")
OPENING = {"{": "}", "<": ">"}


@dataclass
class Entry:
    """One field as it is written.

    Attributes:
        name: the field's.
        line: its line, from 1.
        value: the value, as written, of a field that is no message; strings with their quotes.
        fields: the fields of a message.
        is_message: whether the field is a message.
    """

    name: str
    line: int
    value: str = ""
    fields: list[Entry] = field(default_factory=list)
    is_message: bool = False

    def first(self, name: str) -> str:
        """The first value of a field, without quotes; "" if it is not there."""
        return next((unquoted(entry.value) for entry in self.fields if entry.name == name), "")


def unquoted(value: str) -> str:
    """A value as it is written, without its quotes."""
    return value[1:-1] if value[:1] in ("'", '"') else value


def read_tree(text: str) -> list[Entry]:
    """The fields of a message from its text. Raises TokenError for what is no text format."""
    tokens = [(match["text"], match.start()) for match in TOKEN.finditer(conform(text)) if match["text"]]
    entries, at = _fields(tokens, 0, "")
    if at < len(tokens):
        raise TokenError(f"{tokens[at][0]!r} closes nothing", text, tokens[at][1])
    ends = [match.start() for match in re.finditer("\n", text)]
    for entry in _all(entries):
        entry.line = bisect_left(ends, entry.line) + 1
    return entries


def write_tree(entries: list[Entry], indent: str = "") -> str:
    """The text of a tree."""
    lines = []
    for entry in entries:
        if entry.is_message:
            lines.append(f"{indent}{entry.name} {{\n{write_tree(entry.fields, indent + '  ')}{indent}}}\n")
        else:
            lines.append(f"{indent}{entry.name}: {entry.value}\n")
    return "".join(lines)


def _all(entries: list[Entry]) -> list[Entry]:
    return [inner for entry in entries for inner in (entry, *_all(entry.fields))]


def _fields(tokens: list[tuple[str, int]], at: int, closing: str) -> tuple[list[Entry], int]:
    """The fields up to the closing bracket, and the place of the token behind it."""
    entries: list[Entry] = []
    while at < len(tokens):
        name, start = tokens[at]
        if name == closing:
            return entries, at + 1
        if not name[0].isalpha() and name[0] != "_":
            return entries, at
        more, at = _values(tokens, name, start, at + 1)
        entries += more
        if at < len(tokens) and tokens[at][0] in (",", ";"):
            at += 1
    return entries, at


def _values(tokens: list[tuple[str, int]], name: str, start: int, at: int) -> tuple[list[Entry], int]:
    """One field's value, or those of a list."""
    at += at < len(tokens) and tokens[at][0] == ":"
    if at >= len(tokens):
        return [Entry(name, start)], at
    if tokens[at][0] != "[":
        entry, at = _value(tokens, name, start, at)
        return [entry], at
    entries: list[Entry] = []
    at += 1
    while at < len(tokens) and tokens[at][0] != "]":
        entry, at = _value(tokens, name, start, at)
        entries.append(entry)
        at += at < len(tokens) and tokens[at][0] == ","
    return entries, at + 1


def _value(tokens: list[tuple[str, int]], name: str, start: int, at: int) -> tuple[Entry, int]:
    value = tokens[at][0]
    if value in OPENING:
        fields, at = _fields(tokens, at + 1, OPENING[value])
        return Entry(name, start, "", fields, True), at
    at += 1
    while value[0] in "'\"" and at < len(tokens) and tokens[at][0][0] in "'\"":  # strings side by side are one
        value, at = f"{value} {tokens[at][0]}", at + 1
    return Entry(name, start, value), at
