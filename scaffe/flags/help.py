"""A command's help: flags under headings, one spelling each, every one with its default, as wide as the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from scaffe.flags.flag import REQUIRED, Flag, Range

NARROWEST, WIDEST, LEFT = 60, 100, 25
"""Columns: of the text at least and at most, and of the names at most."""
GLUE = "\N{NO-BREAK SPACE}"  # keeps a range on one line
HABITS = "[default; range]. -x v, --x v, -x=v are the same. Switches: -x, -x=false, -nox"


def help_text(command: str, description: str, flags: Sequence[Flag], arguments: Sequence[Flag]) -> str:
    """The help that ``-h`` prints, without a last newline."""
    width = min(max(shutil.get_terminal_size((80, 24)).columns, NARROWEST), WIDEST)
    listed = [flag for flag in flags if flag.section is not None]
    rows = {"Arguments": [(flag.name, f"{flag.help}{': ' + ', '.join(flag.choices) if flag.choices else ''} "
                           f"{_default(flag)}".strip()) for flag in arguments]}
    for flag in listed:
        rows.setdefault(flag.section or "", []).append((_name(flag), f"{flag.help} {_default(flag)}".strip()))
    column = min(max((len(name) for part in rows.values() for name, _ in part), default=0), LEFT)
    lines = [*_wrapped(_usage(command, listed, arguments), width, 7), "", *_wrapped(description, width)]
    for title, part in rows.items():
        if part:
            lines += ["", f"{title}:", *(line for name, text in part for line in _row(name, text, column, width))]
    return "\n".join([*lines, "", *_wrapped(HABITS, width)] if listed else lines)


def _usage(command: str, flags: Sequence[Flag], arguments: Sequence[Flag]) -> str:
    """The usage line: what must be given, then what may be."""
    words = [_name(flag) for flag in flags if flag.default is REQUIRED]
    words += ["[-flag value ...]"] if len(words) < len(flags) else []
    words += [f"{flag.name} ..." if flag.is_many else flag.name if flag.default is REQUIRED else f"[{flag.name}]"
              for flag in arguments]
    return " ".join(["usage: scaffe", command, *words])


def _name(flag: Flag) -> str:
    names = f"-{flag.short}, -{flag.name}" if flag.short else f"-{flag.name}"
    return names if isinstance(flag.default, bool) else f"{names} {_metavar(flag)}"


def _metavar(flag: Flag) -> str:
    if flag.metavar or flag.choices:
        return flag.metavar or "|".join(flag.choices)
    return "NAME" if not isinstance(flag.kind, Range) else "N" if flag.kind.is_whole else "X"


def _row(name: str, text: str, column: int, width: int) -> Iterator[str]:
    """The lines of one flag: its name on the left, on a line of its own where it is long."""
    if len(name) > column:
        yield f"  {name}"
        name = ""
    for line in textwrap.wrap(text, width - column - 4, break_on_hyphens=False) or [""]:
        yield f"  {name:{column}}  {line.replace(GLUE, ' ')}".rstrip()
        name = ""


def _default(flag: Flag) -> str:
    """In brackets what stands where nothing is given, and the range of what may be."""
    words = {value: word for word, value in flag.kind.words} if isinstance(flag.kind, Range) else {}
    said = [] if flag.default is REQUIRED else [words.get(flag.default) or _shown(flag.default)]
    said += [str(flag.kind)] if isinstance(flag.kind, Range) else []
    text = f"[{'; '.join(said)}]" if said else ""
    return text.replace(" ", GLUE) if isinstance(flag.kind, Range) else text


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return "none" if default in (None, "") else str(default)


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), width - 1, subsequent_indent=" " * indent, break_on_hyphens=False)
