"""What the commands that upgrade prototxt files have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scaffe.files import write_text
from scaffe.flags import Flags
from scaffe.nets import graph


def upgrade_text(command: str, purpose: str, read: Callable[[str], tuple[Any, list[str]]], argv: Sequence[str]) -> int:
    """Read a message from the file OLD and write it in today's form to NEW, as Caffe's tool of that name.

    Args:
        command: the command's name.
        purpose: its first line of help.
        read: gives the message of a file, and lines about what had to be changed to read it.
        argv: OLD and NEW.

    Returns:
        the exit code.

    Raises:
        UserError: OLD cannot be read or upgraded, or NEW cannot be written.
    """
    flags = Flags(command, purpose)
    flags.argument("old", "the prototxt")
    flags.argument("new", "the file to write")
    options = flags.parse(argv)
    message, changes = read(options.old)
    new = graph.upgraded(message, options.old)
    for change in changes:
        print(f"{options.old}: {change}")
    if new == message and not changes:
        print(f"{options.old} is in today's form already")
    write_text(options.new, new)
    print(f"Wrote upgraded {message.DESCRIPTOR.name} text proto to {options.new}")
    return 0
