"""Caffe's command line flags: ``-solver S``, ``--solver=S``, and words that are no flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn


class Flags(argparse.ArgumentParser):
    """An argument parser that takes one dash or two, and ends with exit code 2 and one line on a mistake."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"scaffe {command}", description=description, allow_abbrev=False, add_help=False)
        super().add_argument("-h", "-help", "--help", action="help", help="show this and exit")

    def flag(self, name: str, default: Any = None, help: str = "", choices: Sequence[str] | None = None,
             kind: Callable[[str], Any] | None = None) -> None:
        """Add a flag with a value; a dash inside may be an underscore too. A default of False makes it a switch."""
        spellings = dict.fromkeys(d + n for n in (name, name.replace("_", "-")) for d in ("-", "--"))
        if default is False:
            self.add_argument(*spellings, dest=name, action="store_true", help=help)
            return
        kind = kind or (str if default is None else type(default))
        shown = f"{help} (default: {default})" if default not in (None, "") else help
        self.add_argument(*spellings, dest=name, default=default, type=kind, choices=choices, help=shown,
                          metavar=name.upper())

    def pass_over(self, *names: str) -> None:
        """Take flags that Caffe's program knows and this command of it does not use, as Caffe does."""
        for name in names:
            self.add_argument(f"-{name}", f"--{name}", help=argparse.SUPPRESS)

    def count(self, name: str, help: str) -> None:
        """Add a flag whose value is a number from 0 on, 0 unless given."""
        self.flag(name, 0, help, kind=_count)

    def error(self, message: str) -> NoReturn:
        """One line, exit code 2."""
        from scaffe.cli.main import fail

        raise SystemExit(fail(f"{self.prog.split()[-1]}: {message}", 2))


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, got {text!r}")
    return int(text)
