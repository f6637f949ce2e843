"""Command lines as Caffe's tools take them: ``-name=value``, ``--name=value`` or ``-name value``, and arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from scaffe.data.errors import DataError

YES, NO = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")


class Flags(argparse.ArgumentParser):
    """An argument parser with gflags' habits whose errors are one line and exit code 1."""

    def __init__(self, tool: str, purpose: str) -> None:
        super().__init__(prog=tool, description=purpose, allow_abbrev=False, add_help=False)
        self.add_argument("-h", "-help", "--help", action="help", help="show this and exit")

    def flag(self, name: str, default: Any, text: str) -> None:
        """Add ``-name`` and ``--name`` with the type of its default; a bare boolean means true, ``-noname`` false."""
        names = (f"-{name}", f"--{name}")
        if isinstance(default, bool):
            self.add_argument(*names, nargs="?", const=True, default=default, type=_truth, help=text)
            self.add_argument(f"-no{name}", f"--no{name}", dest=name, action="store_false", help=argparse.SUPPRESS)
        else:
            self.add_argument(*names, default=default, type=type(default), help=f"{text} (default: {default!r})")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse; a bare boolean flag never swallows the argument after it."""
        booleans = {s for a in self._actions if a.const is True for s in a.option_strings}
        return self.parse_args([f"{word}=true" if word in booleans else word for word in argv])

    def error(self, message: str) -> NoReturn:
        """One line instead of the usage text."""
        raise DataError(f"{self.prog}: {message}; see -help")


def _truth(word: str) -> bool:
    if word.lower() in YES:
        return True
    if word.lower() in NO:
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, got {word!r}")
