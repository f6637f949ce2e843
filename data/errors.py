"""The exception that this package raises for a user's mistake or a bad file."""

from scaffe.errors import ExpectedError


class DataError(ExpectedError):
    """Data cannot be read or does not fit. One line names the file or record, what was expected and what was found."""
