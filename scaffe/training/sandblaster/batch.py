"""What L-BFGS reads: the data layers' feeds, and batches and portions as intervals of the order of reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scaffe.data.feeds.portion_feed import PortionFeed
from scaffe.errors import UserError
from scaffe.nets.net import Net


@dataclass(frozen=True)
class Batch:
    """What one pass goes over.

    Attributes:
        first: its first visit.
        portion: images in a portion; the last may have fewer.
    """

    first: int
    n_images: int
    portion: int

    @property
    def n_portions(self) -> int:
        return -(-self.n_images // self.portion)

    def images(self, portion: int) -> tuple[int, int]:
        """A portion's first visit, and how many images it has."""
        done = portion * self.portion
        return self.first + done, min(self.portion, self.n_images - done)

    def weight(self, portion: int) -> float:
        return self.images(portion)[1] / self.n_images


def feeds_of(net: Net) -> list[PortionFeed]:
    """The feeds of a net's data layers. Raises UserError if one cannot be read in portions."""
    feeds = []
    for node in net.nodes:
        feed = getattr(node.layer, "feed", None)
        if isinstance(feed, PortionFeed):
            feeds.append(feed)
        elif node.is_source:
            raise UserError(f"layer {node.name!r}: LBFGS reads images in portions, and a layer of type "
                            f"{node.param.type} cannot; Data, ImageData, HDF5Data and AnnotatedData can",
                            everywhere=True)
    if not feeds:
        raise UserError(f"net {net.name!r} has no data layer for LBFGS to read", everywhere=True)
    return feeds


def batch_of(feeds: Sequence[PortionFeed], given: Any, iteration: int) -> Batch:
    """The batch of an iteration: all images, always the same; or ``lbfgs_param``'s number of them, one after another.
    Raises UserError if all images are wanted, and data layers do not agree on how many there are."""
    portion = feeds[0].n_images
    found = {feed.n_records for feed in feeds}
    if given.batch and (len(found) > 1 or given.batch != max(found)):
        return Batch(iteration * given.batch, given.batch, portion)
    if len(found) > 1 or not max(found):
        raise UserError(f"the training net's data layers have {', '.join(map(str, sorted(found)))} images: give "
                        "lbfgs_param's batch", everywhere=True)
    return Batch(0, max(found), portion)
