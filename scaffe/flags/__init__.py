"""Command lines: the one parser of all commands, and its help."""

from scaffe.flags.flag import MOST, MOST_BYTES, MOST_RANKS, MOST_THREADS, REQUIRED, number, whole
from scaffe.flags.parser import Flags

__all__ = ["MOST", "MOST_BYTES", "MOST_RANKS", "MOST_THREADS", "REQUIRED", "Flags", "number", "whole"]
