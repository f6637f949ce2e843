"""Expected errors: a user's mistake, a damaged file, a lost peer. The user sees each as one line."""

from __future__ import annotations

import traceback
from types import TracebackType

from scaffe.proto.byte_text import shown

ROOT_SPEAKS_FIRST_SECONDS = 10.0
"""How long other ranks wait for rank 0 to print an error that all have. It then ends the job, and their wait."""


MOST_CHARACTERS = 1500
"""Most characters of a message, since a file's text that it quotes may be of any length."""
AT_THE_END = 500  # of these: the end says what was expected


class ExpectedError(ValueError):
    """Base of all errors for which one line tells the user enough. Any other is a defect and shows its traceback.

    Args:
        message: becomes one line, without its middle where it is very long.
        everywhere: see below.

    Attributes:
        everywhere: whether every rank raises the same error, so that only one of them prints it.
    """

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(_brief(message))
        self.everywhere = everywhere


def _brief(message: str) -> str:
    line = " ".join(message.splitlines())
    if len(line) <= MOST_CHARACTERS:
        return line
    return f"{line[:MOST_CHARACTERS - AT_THE_END]} ... {line[-AT_THE_END:]}"


class UsageError(ExpectedError):
    """A wrong flag or argument on the command line. The exit code is 2 instead of 1."""


class UserError(ExpectedError, RuntimeError):
    """A mistake in the user's input: the message names the file, line or layer, what was expected and what came.

    It is also a RuntimeError, because pycaffe raises that for a missing file and scripts catch it.
    """


class MissingFile(UserError, FileNotFoundError):
    """A file that does not exist."""

class LayerError(ExpectedError):
    """A net, or data in it, that a layer cannot work with. The message is one line: what was expected and what came.

    The net puts the layer's name in front of it, so messages here need not name the layer.
    """


class DataError(ExpectedError):
    """Data cannot be read or does not fit. One line names the file or record, what was expected and what was found."""


def is_expected(error: BaseException) -> bool:
    """Whether one line tells the user enough about an error; if not, it is a defect and shows its traceback.

    True for an ``ExpectedError``, an OSError that names a file, a lack of memory, and whatever a user's own code
    raises.
    """
    return (isinstance(error, (ExpectedError, MemoryError)) or (isinstance(error, OSError) and bool(error.filename))
            or users_line(error) is not None)


def one_line(error: BaseException) -> str:
    """The message of an error as one line."""
    return shown(users_line(error) or " ".join(str(error).split()) or type(error).__name__)


def mark_users_error(error: BaseException, line: str, trace: TracebackType | None) -> None:
    """Mark an exception as raised by a user's own code. It keeps its type, as Caffe's users expect.

    Args:
        error: the exception.
        line: the one-line message to print for it.
        trace: the point in its traceback where the user's code begins.
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
