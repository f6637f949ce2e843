"""Shardings of layers over a replica's ranks, and layouts of blobs on them: the words of this package.

A replica of K ranks has one batch of G images, b = G / K of them read by each rank. A blob of n elements an image lies

- in *rows*: each rank has the n elements of its own b images (data parallelism);
- in *columns*: each rank has some of the n elements, of all G images;
- in *channels*: each rank has some channels of all G images;
- in *bands*: each rank has some neighbouring rows of pixels, of all channels of all G images;
- in bands or channels with a *halo*: with those neighbours of a rank's own that its windows reach, too;
- on *one* rank: the replica's first rank has the n elements of all G images;
- *whole*: each rank has the n elements of all G images.
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS, COLUMNS, CHANNELS, BANDS, HALO, ONE, WHOLE = "rows", "columns", "channels", "bands", "halo", "one", "whole"
AXES = {COLUMNS: 1, CHANNELS: 1, BANDS: 2}
"""How a blob can be cut → the axis that ranks share; for columns that of an image's elements in one line."""

REPLICATED, OUTPUTS, INPUTS, BY_COLUMNS, CLASSES = "replicated", "outputs", "inputs", "columns", "classes"
BY_CHANNELS, BY_BANDS, ONE_RANK = "channels", "bands", "one_rank"
CUTS = {BY_COLUMNS: COLUMNS, BY_CHANNELS: CHANNELS, BY_BANDS: BANDS}
"""The kinds whose bottoms and tops are cut alike."""
COMMON_LAYOUT = CUTS | {ONE_RANK: ONE}
"""The kinds whose bottoms and tops lie alike, otherwise than in rows."""


@dataclass(frozen=True)
class Sharding:
    """One way to share a layer.

    Attributes:
        needs: how its bottoms must lie; the last entry holds for all further bottoms.
        gives: how its tops lie.
        splits_parameters: whether each rank has a part of the layer's parameters only, so that their gradients need no
            sum within the replica.
    """

    needs: tuple[str, ...]
    gives: str
    splits_parameters: bool = False

    def need(self, bottom: int) -> str:
        """How bottom number ``bottom`` must lie."""
        return self.needs[min(bottom, len(self.needs) - 1)]


SHARDINGS = {REPLICATED: Sharding((ROWS,), ROWS),
         OUTPUTS: Sharding((WHOLE,), COLUMNS, True),
         INPUTS: Sharding((COLUMNS,), ROWS, True),
         BY_COLUMNS: Sharding((COLUMNS,), COLUMNS),
         CLASSES: Sharding((COLUMNS, WHOLE), ROWS),
         BY_CHANNELS: Sharding((CHANNELS,), CHANNELS, True),
         BY_BANDS: Sharding((BANDS,), BANDS),
         ONE_RANK: Sharding((ONE,), ONE, True)}
"""The ways to share a layer, by the name that ``parallel_param`` has for them in capitals (DistBelief, 3; Krizhevsky's
"One weird trick", 2014). A loss on split classes gives a scalar, which every rank has."""

_FILTERS = Sharding((WHOLE,), CHANNELS, True)
_OTHERS = {("Convolution", OUTPUTS): _FILTERS, ("Deconvolution", OUTPUTS): _FILTERS,
           ("LocalConvolution", BY_BANDS): Sharding((BANDS,), BANDS, True)}


def sharding_of(layer_type: str, kind: str) -> Sharding:
    """The sharding of a kind for layers of a type: outputs of filters are channels, those of products columns."""
    return _OTHERS.get((layer_type, kind), SHARDINGS[kind])


def redistribution_steps(lies: str, needed: str, through: str) -> list[tuple[str, str]]:
    """The redistributions from one layout to another, as pairs. Between two cuts, or a cut and one rank, they pass
    ``through``."""
    if lies == needed:
        return []
    if {lies, needed} <= {*AXES, ONE}:
        return [(lies, through), (through, needed)]
    return [(lies, needed)]
