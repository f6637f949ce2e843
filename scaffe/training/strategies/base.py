"""Strategy: the points of the training loop at which ranks may communicate, each a method that does nothing yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.flags import Flags
from scaffe.layers.base.registry import Registry
from scaffe.training.fault_tolerance.recoverable import RecoverableRank
from scaffe.training.fault_tolerance.state_sources import Part, keeps_copies, neighbours, parts
from scaffe.training.histories import filled, gather_histories, updater_parts
from scaffe.training.strategies.buckets import Bucket
from scaffe.training.strategies.replica import Replica
from scaffe.training.strategies.role import Role
from scaffe.training.updater import Updater

strategies: Registry[type[Strategy]] = Registry("strategy", "scaffe.training.strategies")


class Strategy:
    """How ranks train one net together. A method that is not overridden does nothing.

    Calls of one iteration, in order: ``before_iteration``; in each pass ``before_forward`` and ``after_backward`` for
    every layer; ``gradients_ready``; ``apply``. ``settle`` is called before anyone reads the parameters.
    """

    solver_type: ClassVar[str] = ""
    """The one type of solver that this strategy carries out; empty for those whose rule updates from a gradient."""
    has_converged = False
    """Whether nothing more is to be gained, so that training ends before ``max_iter``."""
    tolerates_rank_loss: ClassVar[bool] = False
    """Whether training goes on when ranks are lost (``-on-rank-loss shrink``)."""
    recovers_in_place: ClassVar[bool] = False
    """Whether it does so in the strategy, which then calls ``on_shrink``, and not by a new solver."""
    trains_parts: ClassVar[bool] = False
    """Whether ranks may share nets (``-partitions``)."""
    in_step: ClassVar[bool] = True
    """Whether all ranks make each update together."""
    refreshes_parameters: ClassVar[bool] = False
    """Whether it writes the parameters of ``early`` anew before each forward: what a rank has of them need not last."""
    may_refresh_parameters: ClassVar[bool] = False
    """Whether it may write them anew before a forward, and else goes on with what this rank has."""

    @classmethod
    def flags(cls, flags: Flags) -> None:
        """Add this strategy's own flags to those of ``train``; their values come as ``replica.options``.

        Two strategies may share a flag: both add it, with the same words.
        """

    @classmethod
    def place(cls, communicator: Communicator, options: Any) -> Role:
        """Say what this rank does, before nets are built: a worker, with its share of the data. Called by all ranks.

        Args:
            communicator: all ranks.
            options: the command line's, by name.

        Raises:
            ExpectedError: on all ranks, if the options do not fit the ranks.
        """
        return Role.worker(communicator, options)

    @classmethod
    def serve(cls, role: Role, param: Any, options: Any) -> int:
        """Take part in training as a rank that is no worker, until it ends. Returns the exit code.

        Args:
            role: what ``place`` returned.
            param: the SolverParameter message.
            options: the command line's, by name.
        """
        raise NotImplementedError

    @classmethod
    def server(cls, role: Role, param: Any, options: Any) -> RecoverableRank:
        """What such a rank is where ranks may be lost (``tolerates_rank_loss``); see ``serve``."""
        raise NotImplementedError

    @classmethod
    def options_for(cls, options: Any, kinds: Sequence[str | None]) -> Any:
        """The options with which ranks that are left, or have come in, are placed.

        Args:
            options: the command line's.
            kinds: what each of these ranks was, as a Role has it; None for one that has just come in.

        Raises:
            ExpectedError: on all ranks, which cannot train.
        """
        return options

    @classmethod
    def why_no_replacement(cls, options: Any) -> str:
        """Says why no ranks can come in for lost ones, with these options; empty where they can."""
        return "this strategy goes on with the ranks that are left (shrink), and takes nobody in" * cls.recovers_in_place

    @classmethod
    def why_not_fault_tolerant(cls, options: Any) -> str:
        """Says why training ends when a rank is lost, with these options; empty where it goes on."""
        return "" if cls.tolerates_rank_loss or cls.recovers_in_place else (
            "this strategy ends when a rank is lost; sc-b, sc-ob, sc-obr, sc-rs, ssp, downpour and sandblaster go on")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.is_last_pass = True  # gradients are complete after this pass (iter_size)
        self.passes: Any = replica.net  # runs forward and backward: the net, or recordings of it
        self.on_shrink: Callable[[Communicator], None] = lambda workers: None  # told of a communicator of those left

    def keep_on_disk(self, folder: str) -> None:
        """From ``begin`` on, what ``kept_bytes`` counts lies in files in a folder as far as it can. Called by all
        ranks, before ``begin``, where memory is limited."""

    @property
    def acts_between_layers(self) -> bool:
        """Whether it is called at every layer: one rank pays for no seam between layers."""
        return self.replica.communicator.n_ranks > 1

    def early(self) -> Sequence[Bucket]:
        """What may be updated by itself as soon as its backward has run: the gradients of others do not count there,
        and its sum has the bits that it has together with theirs. Empty: nothing may."""
        return ()

    def take_eager(self, buckets: Sequence[Bucket]) -> None:
        """From now on ``update_in_backward`` is called for these, some of ``early``, in every iteration. Called by all ranks,
        before ``begin``."""

    def update_in_backward(self, bucket: Bucket, rate: float, iteration: int) -> None:
        """Right after a bucket's backward: sum its gradients, update it, and give all ranks its new parameters. Called
        by all ranks in the same order; rate and iteration are those of ``apply``."""

    @property
    def updates_alone(self) -> bool:
        """Whether nobody but the update reads what is updated early: its gradients need not be there together."""
        return False

    @property
    def own_updaters(self) -> Sequence[Updater]:
        """Updaters, beside the replica's and before it in each iteration, whose histories a memory plan may move."""
        return ()

    def parameter_refresher(self, bucket: Bucket) -> Callable[[], None] | None:
        """Where it ``refreshes_parameters``: what writes one of ``early`` once more between its forward and its update, with the same
        values; None where the values may be other ones by then."""
        return None

    @property
    def hook_points(self) -> Collection[int]:
        """Indices of the layers before whose forward, or after whose backward, this strategy acts.

        Layers between two of them may run as one piece (a CUDA graph).
        """
        return range(len(self.replica.net.nodes))

    @property
    def images_per_pass(self) -> int:
        """Images of one pass where it is not one of the net's batches on each rank; else 0."""
        return 0

    def begin(self) -> None:
        """Once, before the first iteration."""

    @property
    def peers(self) -> Communicator:
        """The ranks that do the same iteration at the same time, so that they can agree on something in every one.

        Those of an asynchronous strategy are in step only after ``settle``: there a rank's only peer is itself.
        """
        return self.replica.workers

    def agree(self, level: int, iteration: int) -> int:
        """Agree on what all ranks do after the same iteration (stop, snapshot). Called in every iteration.

        Args:
            level: what this rank wants; the highest of all ranks' counts. 0 for nothing.
            iteration: iterations done before this one.

        Returns:
            what all ranks do after this iteration.
        """
        agreed = np.array([level], np.int32)
        if self.peers.n_ranks > 1:
            self.peers.allreduce(agreed, "max", "mpi")
        return int(agreed[0])

    def before_iteration(self, rate: float, iteration: int) -> None:
        """Before the passes of an iteration; its arguments are those of ``apply``."""

    def before_forward(self, layer_index: int) -> None:
        """Just before a layer's forward."""

    def after_backward(self, layer_index: int) -> None:
        """Right after a layer's backward. Its gradients are complete only if ``is_last_pass``."""

    def gradients_ready(self) -> None:
        """After the last pass."""

    def apply(self, rate: float, iteration: int) -> None:
        """Update the parameters.

        Args:
            rate: the learning rate.
            iteration: iterations done before this one.
        """

    def settle(self) -> None:
        """Bring the newest parameters to every rank; called before a test, a snapshot and the end."""

    def owned(self) -> Sequence[slice]:
        """The intervals of the flat buffers that this rank updates, and holds the update rule's histories of.

        No two ranks own the same element. Called once, before training.
        """
        return [slice(0, self.replica.net.params.n_elems)]

    def owned_by(self, rank: int) -> Sequence[slice]:
        """As ``owned``, of any rank. Only strategies that go on without lost ranks (``tolerates_rank_loss``) say it."""
        raise NotImplementedError

    def abandon(self) -> None:
        """After a loss, before anything else: end what this rank does for others, and wait for nobody."""

    def recovery_sources(self, left: Collection[int], communicator: Communicator) -> list[Part]:
        """After a loss: who gives which part of parameters and histories. Called by all ranks that are left.

        Args:
            left: those, by their old numbers, ascending.
            communicator: theirs.
        """
        replica = self.replica
        ranks = replica.communicator
        copied_to = neighbours(ranks.topology.nodes) if keeps_copies(replica.options) else ()
        return parts(self.owned_by, ranks.n_ranks, left, copied_to)

    def recovery_values(self, part: Part) -> tuple[np.ndarray, list[np.ndarray]]:
        """What this rank gives as a part: parameters and, where the part is whole, histories; flat.

        Args:
            part: one of ``recovery_sources``, of which this rank is the giver.
        """
        updater, place = self.replica.updater, part.interval
        histories = [filled(place, updater_parts(updater, index, with_copies=True))
                     for index in range(updater.rule.n_histories if part.is_whole else 0)]
        return self.replica.net.params.data[place], histories

    @property
    def kept_bytes(self) -> int:
        """Of arrays that it keeps in this rank's memory beside the net's and the histories that the rank updates."""
        return 0

    @property
    def server_bytes(self) -> int:
        """In the memory of each rank that is no worker; 0 without such ranks."""
        return 0

    def copied(self) -> Sequence[slice]:
        """The intervals that another rank owns, and that this one updates too, so that they outlive the other."""
        return []

    def parameters(self) -> np.ndarray:
        """The parameters as a snapshot saves them, all of the same iteration. Called by all ranks.

        Returns:
            (n_elems,), the net's own buffer or a copy, whole on rank 0 at least.
        """
        self.settle()
        net = self.replica.net
        net.params.bring()
        return net.params.whole(net.context.kernels.to_host)

    def histories(self) -> list[np.ndarray]:
        """The update rule's whole histories, for a snapshot. Called by all ranks.

        Returns:
            on rank 0 one flat array per history, (n_elems,), of the parameters' dtype, in host memory; elsewhere an
            empty list.
        """
        return gather_histories(self.replica.updater, self.replica.communicator)

    def load_history(self, index: int, start: int, values: np.ndarray) -> None:
        """Take over a part of one of the update rule's histories, before ``begin``; the parts need not be this rank's.

        Args:
            index: which history.
            start: the element of the flat buffers that ``values[0]`` belongs to.
            values: (n,), in host memory.
        """
        self.replica.updater.load_history(index, start, values)

    def guard(self, call: Callable[[], None]) -> None:
        """Run what an observer does; where training goes on in a strategy's own way, again if a rank is lost in it.

        Args:
            call: may settle, and then act together with the other ranks.
        """
        call()

    def finish(self) -> None:
        """Once, after the last iteration."""

    def counters(self) -> dict[str, float]:
        """What this rank has counted so far, by name: a timeline shows the rates, per second, as curves."""
        return {}

    def iterate(self, rate: float, iteration: int) -> float:
        """Run the ``iter_size`` passes of one iteration; the arguments are those of ``apply``.

        Returns:
            this rank's mean loss over the passes.
        """
        replica, loss = self.replica, 0.0
        self.before_iteration(rate, iteration)
        replica.net.clear_param_diffs()
        for i in range(replica.iter_size):
            self.is_last_pass = i == replica.iter_size - 1
            with replica.timers.forward(replica.net):
                loss += self.passes.forward()
            with replica.timers("backward"):
                self.passes.backward()
        self.gradients_ready()
        return loss / replica.iter_size
