"""What is raised for what may be expected to go wrong: a user's mistake, a damaged file, a peer that has gone."""

from __future__ import annotations


class ExpectedError(ValueError):
    """The base of every error whose one line is all that a user needs. Any other is a defect and keeps its traceback.

    Attributes:
        everywhere: every rank raises the same, so that one of them says it.
    """

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere


class UserError(ExpectedError, RuntimeError):
    """A mistake in what the trainer was given: the line names the file, line or layer, what was expected and what came.

    A RuntimeError too, because that is what pycaffe raises for a missing file, and scripts catch it.
    """


class MissingFile(UserError, FileNotFoundError):
    """A file that is not there."""


EXPECTED = (ExpectedError, OSError, MemoryError)
"""What a user's mistake or a full machine raises; all else is a defect."""


def one_line(error: BaseException) -> str:
    """The message of an error as one line."""
    return " ".join(str(error).split()) or type(error).__name__
