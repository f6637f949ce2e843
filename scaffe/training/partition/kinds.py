"""How a layer may be shared by the ranks of a replica, and how a blob lies on them. Words of the whole room.

A replica of K ranks has one batch of G images, b = G / K of them read by each rank. A blob of n elements an image lies

- in *rows*: each rank has the n elements of its own b images (data parallelism);
- in *columns*: each rank has some of the n elements, of all G images;
- *whole*: each rank has the n elements of all G images.
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS, COLUMNS, WHOLE = "rows", "columns", "whole"

REPLICATED, OUTPUTS, INPUTS, BY_COLUMNS, CLASSES = "replicated", "outputs", "inputs", "columns", "classes"


@dataclass(frozen=True)
class Kind:
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


KINDS = {REPLICATED: Kind((ROWS,), ROWS),
         OUTPUTS: Kind((WHOLE,), COLUMNS, True),
         INPUTS: Kind((COLUMNS,), ROWS, True),
         BY_COLUMNS: Kind((COLUMNS,), COLUMNS),
         CLASSES: Kind((COLUMNS, WHOLE), ROWS)}
"""The ways to share a layer, by the name that ``parallel_param`` has for them in capitals (DistBelief, 3; Krizhevsky's
"One weird trick", 2014). A loss on split classes gives a scalar, which every rank has."""
