"""Batches and portions that L-BFGS reads, and the messages between its coordinator, replicas and nets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scaffe.collectives.messages import message
from scaffe.collectives.server.vectors.messages import COORDINATOR, REPLICA, Message
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


@message
class Begin(Message):
    """From the first worker's loop: all workers come to a phase now. ``kind``: "renew", "step" or "synchronize"."""

    to = COORDINATOR
    phase: int
    kind: str
    batch: Batch
    rate: float


@message
class Over(Message):
    """A phase is over.

    Attributes:
        has_converged: whether nothing more is to be gained.
        lost: the replicas that are lost, as far as the coordinator knew.
        wish: the highest that replicas wished for (``Wish``) and has not been in an earlier one.
    """

    to = REPLICA
    phase: int
    loss: float
    has_converged: bool
    lost: tuple[int, ...] = ()
    wish: int = 0


@message
class Wish(Message):
    """A replica wants all of them to do something after the same iteration: see ``InStep.agree``."""

    to = COORDINATOR
    level: int


@message
class Step(Message):
    """A pass over a batch begins; what a replica still does or holds of an earlier one is of no use."""

    to = REPLICA
    step: int


@message
class Free(Message):
    """A replica has nothing to do."""

    to = COORDINATOR


@message
class Work(Message):
    """Compute a portion: ``n_elems`` images from visit ``first`` on, which weigh ``weight`` in the batch's mean."""

    to = REPLICA
    step: int
    portion: int
    first: int
    n_images: int
    weight: float


@message
class Finished(Message):
    """A replica has computed a portion, and asks whether its result counts."""

    to = COORDINATOR
    step: int
    portion: int
    loss: float


@message
class Verdict(Message):
    """Whether a finished portion goes into the bundle, and if ``bundle`` is not empty: send that."""

    to = REPLICA
    step: int
    portion: int
    keeps: bool


@message
class SendBundle(Message):
    """Send the sum of these portions to the shards."""

    to = REPLICA
    step: int
    bundle: tuple[int, ...]


@message
class Take(Message):
    """Read the parameters of a step into the net, and say so."""

    to = REPLICA
    step: int


@message
class Taken(Message):
    """A replica has the parameters of a step."""

    to = COORDINATOR
    step: int


@message
class Fenced(Message):
    """A replica stood still: what it has not delivered is others' now. It forgets that, and says ``Back``."""

    to = REPLICA


@message
class Back(Message):
    """A replica that was fenced may be given portions again."""

    to = COORDINATOR
