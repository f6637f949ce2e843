"""The parser's old place; gone as soon as nobody imports it from here."""

from scaffe.flags import Flags

__all__ = ["Flags"]
