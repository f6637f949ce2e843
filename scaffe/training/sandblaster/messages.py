"""Messages between the coordinator and the replicas, and within a rank between its net and its coordinator."""

from __future__ import annotations

from scaffe.collectives.messages import message
from scaffe.collectives.server.vectors.messages import COORDINATOR, REPLICA, Message
from scaffe.training.sandblaster.batch import Batch


@message
class Begin(Message):
    """From the first worker's loop: all workers come to a phase now.

    Attributes:
        kind: "renew", "step" or "synchronize".
    """

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
