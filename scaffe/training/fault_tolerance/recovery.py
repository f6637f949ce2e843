"""Recovery after a loss, or with joining ranks: carries out over MPI what the recovery state machine says."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.collectives.failure import report_and_abort
from scaffe.collectives.grow import enlarge
from scaffe.training.fault_tolerance.recoverable import RecoverableRank, take_over
from scaffe.training.fault_tolerance.recovery_state_machine import (
    Act,
    NothingLeft,
    Place,
    RanksReady,
    RecoveryStateMachine,
)
from scaffe.training.fault_tolerance.replacement import Spawner

Build = Callable[[Communicator, Sequence[str | None]], RecoverableRank]
"""Builds what this rank is among the ranks that are left, from what each of them was (a Role's kind; None where it has
just joined). All of them call it."""


def train_with_recovery(rank: RecoverableRank, build: Build, spawner: Spawner) -> None:
    """Train to the end, and recover from each loss; end the job if no rank is left that can train.

    Called by all ranks.
    """
    while True:
        world, machine = rank.world, rank.machine
        spawner.counted(world.rank, world.n_ranks)
        try:
            rank.run(spawner.are_ready)
        except RankLost as loss:
            machine.lost()
            rank = Recovery(world, machine, build, spawner, rank).run(loss)
        except RanksReady:
            machine.joining()
            rank = Recovery(world, machine, build, spawner, rank).run()
        else:
            spawner.close()
            rank.close()
            return


def join_training(communicator: Communicator, in_step: bool, build: Build, spawner: Spawner) -> None:
    """Train to the end as a joining rank. Called by all of them, while the others let them join. ``in_step``: whether
    all ranks make each update together, so that recovery counts updates."""
    machine = RecoveryStateMachine.for_joining_rank(in_step)
    train_with_recovery(Recovery(communicator, machine, build, spawner).run(), build, spawner)


class Recovery:
    """What one rank does from a loss, or from the end of an iteration, until training continues. ``rank``: what this
    rank has been; None where it has just joined."""

    def __init__(self, communicator: Communicator, machine: RecoveryStateMachine, build: Build, spawner: Spawner,
                 rank: RecoverableRank | None = None) -> None:
        self._rank, self._build, self._member, self._spawner = rank, build, machine, spawner
        self._communicator, self._rebuilt = communicator, rank
        self._seconds: dict[str, float] = defaultdict(float)  # by what was done

    def run(self, loss: RankLost | None = None) -> RecoverableRank:
        """Continue without the lost ranks, and without those that are lost meanwhile; or with joining ones.
        Returns what this rank is from now on."""
        n_ranks = self._communicator.n_ranks
        while self._member.act is not Act.TRAIN:
            act, started = self._member.act, time.perf_counter()
            try:
                self._member.done(self._do(act))
            except RankLost as another:
                loss = loss or another
                self._member.lost()
            except NothingLeft as error:
                report_and_abort(self._communicator, error)
            finally:
                self._seconds[act.value] += time.perf_counter() - started
        found = self._take()
        if loss is not None:
            names = ", ".join(map(str, loss.ranks)) or "unknown"
            times = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self._seconds.items())
            log.warning(f"Lost in iteration {found.iteration}: rank {names} of {n_ranks} ranks; "
                        f"{self._communicator.n_ranks} go on ({sum(self._seconds.values()):.2f} s: {times})")
        else:
            log.info(f"New ranks have come in after iteration {found.iteration}: {self._communicator.n_ranks} train on")
        found.say_shares()
        return found

    def _do(self, act: Act) -> Sequence[Place]:
        if act is Act.SHRINK:
            self._use(self._communicator.shrink())
        elif act is Act.JOIN:
            self._join()
        elif act is Act.TELL:
            return self._communicator.allgather_objects(self._member.place)
        elif act is Act.FOLLOW:
            self._follow()
        elif act is Act.REBUILD:
            self._rebuild()
        elif act is Act.MEET:
            self._communicator.barrier()
        return ()

    def _use(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._communicator.install_excepthook()
        log.silence(self._communicator.rank != 0)

    def _join(self) -> None:
        joining_ranks = self._spawner.taken()
        try:
            self._use(enlarge(self._communicator, joining_ranks))
        except RankLost:
            if joining_ranks is not None:
                joining_ranks.dismiss()
                self._spawner.came(False)
            raise
        if joining_ranks is not None:
            self._spawner.came(True)

    def _follow(self) -> None:
        """Take the step that another rank has taken: use what was rebuilt, or make the update."""
        if self._rebuilt is not self._rank:
            self._take()
        elif self._rank is not None:
            self._rank.update()

    def _rebuild(self) -> None:
        self._rebuilt, old = self._rank, self._rank
        if old is not None:
            old.abandon()
        kinds = self._communicator.allgather_objects(None if old is None else old.kind)
        made = self._build(self._communicator, kinds)
        take_over(made, old)
        self._rebuilt = made

    def _take(self) -> RecoverableRank:
        if self._rebuilt is None:
            raise RuntimeError("a new rank has taken a step before it had a solver")
        self._rebuilt.machine = self._member
        self._rank = self._rebuilt
        return self._rank
