"""Going on after a loss, or with new ranks: the shell around survival.member, which does what that says, over MPI."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.collectives.joining import enlarge
from scaffe.errors import UserError
from scaffe.training.solver import Solver
from scaffe.training.survival.member import Act, Member, Place, RanksReady
from scaffe.training.survival.rebuild import say_shares, take_over
from scaffe.training.survival.spawner import Spawner

Build = Callable[[Communicator], Solver]
"""Builds this rank's nets and solver on the ranks that are left; all of them call it."""


def outlive(solver: Solver, build: Build, spawner: Spawner) -> None:
    """Train to the end, whatever ranks are lost. Called by all ranks.

    Args:
        solver: built, and restored if the run resumes.
        build: builds one like it.
        spawner: starts ranks for lost ones.

    Raises:
        UserError: on all ranks, on GPUs, whose collectives do not wake for a loss.
    """
    if solver.net.context.kernels.PLACE == "device":
        raise UserError("-on_rank_loss cannot be had: jobs on GPUs end when a rank is lost", everywhere=True)
    while True:
        spawner.counted(solver.communicator.rank, solver.communicator.n_ranks)
        solver.are_ranks_ready = spawner.are_ready
        try:
            solver.solve()
            solver.communicator.barrier()  # nobody leaves before all have the last update
        except RankLost as loss:
            solver.member.lost()
            solver = Recovery(solver.communicator, solver.member, build, spawner, solver).run(loss)
        except RanksReady:
            solver.member.joining()
            solver = Recovery(solver.communicator, solver.member, build, spawner, solver).run()
        else:
            spawner.close()
            solver.close()
            return


def come_in(communicator: Communicator, in_step: bool, build: Build, spawner: Spawner) -> None:
    """Train to the end as a new rank. Called by all new ranks, while the others take them in.

    Args:
        communicator: all ranks.
        in_step: whether all ranks make each update together.
        build, spawner: as ``outlive`` has them.

    Raises:
        NothingLeft: on all ranks.
    """
    outlive(Recovery(communicator, Member.newcomer(in_step), build, spawner).run(), build, spawner)


class Recovery:
    """What one rank does from a loss, or from an iteration's border, until training goes on.

    Args:
        communicator: of the ranks that there were.
        member: what this rank does.
        build, spawner: see ``outlive``.
        solver: this rank's; None where it is new.
    """

    def __init__(self, communicator: Communicator, member: Member, build: Build, spawner: Spawner,
                 solver: Solver | None = None) -> None:
        self._solver, self._build, self._member, self._spawner = solver, build, member, spawner
        self._communicator, self._rebuilt = communicator, solver

    def run(self, loss: RankLost | None = None) -> Solver:
        """Go on without the lost ranks, and without those that are lost meanwhile; or with new ones.

        Returns:
            the solver that training goes on with.
        """
        n_ranks = self._communicator.n_ranks
        while self._member.act is not Act.TRAIN:
            try:
                places = self._do(self._member.act)
            except RankLost as another:
                loss = loss or another
                self._member.lost()
            else:
                self._member.done(places)
        found = self._take()
        if loss is not None:
            names = ", ".join(map(str, loss.ranks)) or "unknown"
            log.warning(f"Lost of {n_ranks} ranks in iteration {found.iteration}: {names}; "
                        f"{self._communicator.n_ranks} go on")
        else:
            log.info(f"New ranks have come in after iteration {found.iteration}: {self._communicator.n_ranks} train on")
        say_shares(found)
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
        newcomers = self._spawner.taken()
        try:
            self._use(enlarge(self._communicator, newcomers))
        except RankLost:
            if newcomers is not None:
                newcomers.dismiss()
                self._spawner.came(False)
            raise
        if newcomers is not None:
            self._spawner.came(True)

    def _follow(self) -> None:
        """Take the step that another rank has taken: the rebuilt solver, or the update whose gradients are here."""
        if self._rebuilt is not self._solver:
            self._take()
        elif self._solver is not None:
            self._solver.update()

    def _rebuild(self) -> None:
        self._rebuilt, old = self._solver, self._solver
        if old is not None:
            old.strategy.abandon()
            old.close()
        made = self._build(self._communicator)
        take_over(made, old)
        self._rebuilt = made

    def _take(self) -> Solver:
        if self._rebuilt is None:
            raise RuntimeError("a new rank has taken a step before it had a solver")
        self._rebuilt.member = self._member
        self._solver = self._rebuilt
        return self._solver
