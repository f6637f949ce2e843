"""The one exception that layers raise for a user's mistake."""

from scaffe.errors import ExpectedError


class LayerError(ExpectedError):
    """A net, or data in it, that a layer cannot work with. The message is one line: what was expected and what came.

    The net puts the layer's name in front of it, so messages here need not name the layer.
    """
