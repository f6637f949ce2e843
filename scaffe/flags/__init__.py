"""Command lines: the one parser of all commands, and its help."""

from scaffe.flags.flag import REQUIRED, at_least
from scaffe.flags.parser import Flags

__all__ = ["REQUIRED", "Flags", "at_least"]
