"""The one exception that layers raise for a user's mistake."""

from scaffe.errors import ExpectedError


class LayerError(ExpectedError):
    """A net that cannot be: the message is one line with what was expected and what came.

    The net puts the layer's name in front of it, so messages here need not name the layer.
    """
