"""All commands' flags, as gflags has them: ``-x v``, ``--x v``, ``-x=v``; switches ``-x``, ``-x=false``, ``-nox``."""

from __future__ import annotations

import difflib
import inspect
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from scaffe.errors import UsageError
from scaffe.flags.flag import REQUIRED, Flag, kind_of
from scaffe.flags.help import help_text

HELP = ("h", "help")


class Flags:
    """The flags and arguments of one command.

    Args:
        command: its name.
        description: what it does, for its help.
    """

    def __init__(self, command: str, description: str) -> None:
        self.command, self.description = command, description
        self.flags: dict[str, Flag] = {}
        self.arguments: list[Flag] = []
        self._section = "Flags"

    @classmethod
    def of(cls, command: Callable[..., int]) -> Flags:
        """The flags of a command that is a function, with its name and its docstring."""
        return cls(command.__name__, inspect.getdoc(command) or "")

    def section(self, title: str) -> None:
        """List the flags that follow under this heading of the help."""
        self._section = title

    def flag(self, name: str, default: Any = None, help: str = "", choices: Sequence[str] | None = None,
             kind: Callable[[str], Any] | None = None, short: str = "", metavar: str = "") -> None:
        """Add a flag. Its kind is its default's unless given; a default of True or False makes it a switch.

        A flag may be added twice (by two strategies that share it) if both say the same.

        Raises:
            ValueError: the name stands for another flag already.
        """
        made = Flag(name, default, help, kind or kind_of(default), tuple(choices or ()), short, metavar, self._section)
        if self.flags.get(name, made) != made:
            raise ValueError(f"the flag -{name} is there already, with another meaning")
        self.flags[name] = made

    def argument(self, name: str, help: str, default: Any = REQUIRED, choices: Sequence[str] | None = None,
                 kind: Callable[[str], Any] = str) -> None:
        """Add an argument, a word without dashes; those that may be left out come last."""
        self.arguments.append(Flag(name, default, help, kind, tuple(choices or ())))

    def rest(self, name: str, help: str) -> None:
        """Add the last argument, which takes one word or more; its value is their list."""
        self.arguments.append(Flag(name, REQUIRED, help, str, is_many=True))

    def pass_over(self, *names: str) -> None:
        """Take flags that Caffe's program knows and this command of it does not use, as Caffe does."""
        for name in names:
            self.flags[name] = Flag(name, None, "", str, section=None)

    def parse(self, argv: Sequence[str]) -> Namespace:
        """The values of all flags and arguments, by name. Of a flag given twice the last counts.

        Raises:
            UsageError: a flag is unknown or its value is not what it must be; an argument is missing or too many.
            SystemExit: help was asked for and is printed.
        """
        values = {flag.name: flag.default for flag in (*self.flags.values(), *self.arguments)}
        words: list[str] = []
        for word, flag, value in self._split(argv):
            if flag is None:
                words.append(word)
            else:
                values[flag.name] = self._value(flag, value, f"-{flag.name}")
        if self.arguments and self.arguments[-1].is_many and len(words) >= len(self.arguments):
            values[self.arguments[-1].name] = [words.pop() for _ in range(len(words) - len(self.arguments) + 1)][::-1]
        if len(words) > len(self.arguments):
            self.error(f"unexpected {words[len(self.arguments)]!r}: takes {len(self.arguments) or 'no'} argument(s)")
        for argument, word in zip(self.arguments, words, strict=False):
            values[argument.name] = self._value(argument, word, argument.name)
        for flag in (*self.flags.values(), *self.arguments):
            if values[flag.name] is REQUIRED:
                self.error(f"needs {'' if flag in self.arguments else '-'}{flag.name}")
        return Namespace(**values)

    def error(self, message: str) -> NoReturn:
        """Refuse the command line. Raises UsageError."""
        raise UsageError(f"{self.command}: {message}; see scaffe {self.command} -h", everywhere=True)

    def _split(self, argv: Sequence[str]) -> Iterator[tuple[str, Flag | None, str | bool]]:
        """The words of a command line, each with its flag (None: an argument) and the value as it stands there."""
        words = iter(argv)
        for word in words:
            name, has_value, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            if not word.startswith("-") or word == "-":
                yield word, None, ""
            elif word == "--":
                yield from ((rest, None, "") for rest in words)
            elif name in HELP:
                print(help_text(self.command, self.description, list(self.flags.values()), self.arguments))
                raise SystemExit(0)
            elif (flag := self._find(name)) is None and (off := self._find(name.removeprefix("no"))) \
                    and isinstance(off.default, bool) and not has_value:
                yield word, off, False
            elif flag is None:
                near = difflib.get_close_matches(name, [f.name for f in self.flags.values() if f.section], 1)
                self.error(f"unknown flag {word}" + (f"; did you mean -{near[0]}?" if near else ""))
            elif has_value:
                yield word, flag, value
            elif isinstance(flag.default, bool):
                yield word, flag, True
            else:
                yield word, flag, self._next(words, flag)

    def _find(self, name: str) -> Flag | None:
        return self.flags.get(name) or next((f for f in self.flags.values() if f.short and f.short == name), None)

    def _next(self, words: Iterator[str], flag: Flag) -> str:
        value = next(words, None)
        if value is None or (value.startswith("-") and self._find(value.lstrip("-").partition("=")[0])):
            self.error(f"-{flag.name} needs a value")
        return value

    def _value(self, flag: Flag, value: str | bool, shown: str) -> Any:
        if isinstance(value, bool):
            return value
        try:
            return flag.value(value)
        except ValueError as error:
            self.error(f"{shown} {error}, got {value!r}")
