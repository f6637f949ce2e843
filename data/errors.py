"""The one exception that this package raises for a user's mistake or a bad file."""


class DataError(ValueError):
    """Data that cannot be read or do not fit: one line with the file or record, what was expected and what came."""
