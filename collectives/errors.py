"""The one exception that the collective runtime raises for a caller's mistake or a peer's failure."""


class CommError(ValueError):
    """A collective that cannot be, or a peer that does not answer: one line with what was expected and what came.

    `everywhere` is True when every rank raises the same error (so that one rank's line is enough for a reader).
    """

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere
