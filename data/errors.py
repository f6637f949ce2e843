"""The one exception that this package raises for a user's mistake or a bad file."""


class DataError(ValueError):
    """Data that cannot be read or do not fit: one line with the file or record, what was expected and what came."""


def cannot_write(path: object, error: OSError) -> DataError:
    """What to raise where a file or folder cannot be written: the target, and what the system says."""
    return DataError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}")
