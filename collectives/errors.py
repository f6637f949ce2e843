"""The one exception that the collective runtime raises for a caller's mistake or a peer's failure."""

from scaffe.errors import ExpectedError


class CommError(ExpectedError):
    """A collective that cannot be, or a peer that does not answer: one line with what was expected and what came."""
