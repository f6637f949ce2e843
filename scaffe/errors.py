"""The one exception that the trainer raises for a user's mistake."""


class UserError(ValueError):
    """One line that names the file, line or layer, what was expected and what came.

    Attributes:
        everywhere: every rank raises the same, so that one of them says it.
    """

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere
