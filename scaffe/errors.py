"""The one exception that the trainer raises for a user's mistake."""


class UserError(ValueError, RuntimeError):
    """One line that names the file, line or layer, what was expected and what came.

    A RuntimeError too, because that is what pycaffe raises for a missing file, and scripts catch it.

    Attributes:
        everywhere: every rank raises the same, so that one of them says it.
    """

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere


class MissingFile(UserError, FileNotFoundError):
    """A file that is not there."""
