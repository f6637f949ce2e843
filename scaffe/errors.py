"""Errors that may be expected: a user's mistake, a damaged file, a peer that has gone. Each is one line to the user."""

from __future__ import annotations


class ExpectedError(ValueError):
    """The base of every error whose one line is all that a user needs. Any other is a defect and keeps its traceback.

    Attributes:
        everywhere: every rank raises the same, so that one of them says it.
    """

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere


class UsageError(ExpectedError):
    """A command line that cannot be: a wrong flag or argument. The exit code is 2 instead of 1."""


class UserError(ExpectedError, RuntimeError):
    """A mistake in what the trainer was given: the line names the file, line or layer, what was expected and what came.

    A RuntimeError too, because that is what pycaffe raises for a missing file, and scripts catch it.
    """


class MissingFile(UserError, FileNotFoundError):
    """A file that is not there."""


def is_expected(error: BaseException) -> bool:
    """Whether an error's one line is all that a user needs; any other is a defect and keeps its traceback.

    True for an ``ExpectedError``, for what the system says of a file by name, and where memory is short.
    """
    return isinstance(error, (ExpectedError, MemoryError)) or (isinstance(error, OSError) and bool(error.filename))


def one_line(error: BaseException) -> str:
    """The message of an error as one line."""
    return " ".join(str(error).split()) or type(error).__name__
