"""The one exception that this package raises for a user's mistake or a bad file."""

from scaffe.errors import ExpectedError


class DataError(ExpectedError):
    """Data that cannot be read or do not fit: one line with the file or record, what was expected and what came."""
