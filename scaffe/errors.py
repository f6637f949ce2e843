"""Errors that may be expected: a user's mistake, a damaged file, a peer that has gone. Each is one line to the user."""

from __future__ import annotations

import traceback
from types import TracebackType


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

    True for an ``ExpectedError``, for what the system says of a file by name, where memory is short, and for what a
    user's own code raises.
    """
    return (isinstance(error, (ExpectedError, MemoryError)) or (isinstance(error, OSError) and bool(error.filename))
            or users_line(error) is not None)


def one_line(error: BaseException) -> str:
    """The message of an error as one line."""
    return users_line(error) or " ".join(str(error).split()) or type(error).__name__


def mark_users_error(error: BaseException, line: str, trace: TracebackType | None) -> None:
    """Say of an exception that a user's own code raised it. It keeps its type, as Caffe's users expect.

    Args:
        error: the exception.
        line: what is said of it on one line.
        trace: where the user's code begins in its traceback.
    """
    error._users_error = line, trace  # type: ignore[attr-defined]
    error.add_note(line)


def users_line(error: BaseException) -> str | None:
    """The line that ``mark_users_error`` gave this error; None for others."""
    return getattr(error, "_users_error", (None,))[0]


def users_traceback(error: BaseException | None) -> str:
    """The traceback in the user's own code that led to an error; empty where no such code did."""
    while error is not None:
        if users_line(error) is not None:
            frames = [frame for frame in traceback.extract_tb(error._users_error[1])  # type: ignore[attr-defined]
                      if "importlib" not in frame.filename]
            what = traceback.TracebackException(type(error), error, None)
            what.__notes__ = None  # the line that stands above
            return "".join(["Traceback of the layer's own code (most recent call last):\n",
                            *traceback.format_list(frames), *what.format_exception_only()])
        error = error.__cause__
    return ""
