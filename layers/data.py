"""The Data layer: batches from a database, read ahead by the trainer's feed."""

from __future__ import annotations

from collections.abc import Sequence

from layers.blob import Blob
from layers.errors import LayerError
from layers.layer import Layer, layer_types


@layer_types.register("Data")
class Data(Layer):
    """Images (N, C, H, W), and labels (N,) where a second top asks for them, from a DataParameter's source.

    The feed comes from ``context.open_feed(param, context)``: it has ``shapes``, one per top, ``next()`` that gives
    one array per top in storage order, and ``close()``.

    Raises:
        LayerError: when nobody lends a feed.
    """

    n_bottoms = (0, 0)
    n_tops = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Open the feed, which takes the draws from the stream that Caffe's readers take as they start."""
        if self.context.open_feed is None:
            raise LayerError("needs the trainer to open its data source")
        self.feed = self.context.open_feed(self.param, self.context)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Tops as the feed's shapes."""
        for blob, shape in zip(top, self.feed.shapes):
            blob.reshape(shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """The next batch."""
        for blob, array in zip(top, self.feed.next()):
            blob.data_flat[:] = array.reshape(-1)

    def close(self) -> None:
        """Stop the readers."""
        self.feed.close()
