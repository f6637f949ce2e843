"""Going on after a loss: the shell around survival.member, which does what that says, over MPI."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe import log
from scaffe.collectives.communicator import Communicator
from scaffe.collectives.errors import RankLost
from scaffe.errors import UserError
from scaffe.training.solver import Solver
from scaffe.training.survival.member import Act, Place
from scaffe.training.survival.rebuild import say_shares, take_over

Build = Callable[[Communicator], Solver]
"""Builds this rank's nets and solver on the ranks that are left; all of them call it."""


def outlive(solver: Solver, build: Build) -> None:
    """Train to the end, whatever ranks are lost. Called by all ranks.

    Args:
        solver: built, and restored if the run resumes.
        build: builds one like it.

    Raises:
        UserError: on all ranks, on GPUs, whose collectives do not wake for a loss.
    """
    if solver.net.context.kernels.PLACE == "device":
        raise UserError("-on_rank_loss shrink cannot be had: jobs on GPUs end when a rank is lost", everywhere=True)
    while True:
        try:
            solver.solve()
            solver.communicator.barrier()  # nobody leaves before all have the last update
        except RankLost as loss:
            solver = Recovery(solver, build).run(loss)
        else:
            solver.close()
            return


class Recovery:
    """What one rank does from a loss until training goes on.

    Args:
        solver: its solver when it found out.
        build: see ``outlive``.
    """

    def __init__(self, solver: Solver, build: Build) -> None:
        self._solver, self._build, self._member = solver, build, solver.member
        self._communicator, self._rebuilt = solver.communicator, solver

    def run(self, loss: RankLost) -> Solver:
        """Go on without the lost ranks, and without those that are lost meanwhile.

        Returns:
            the solver that training goes on with.
        """
        lost, n_ranks = loss.ranks, self._communicator.n_ranks
        self._member.lost()
        while self._member.act is not Act.TRAIN:
            try:
                places = self._do(self._member.act)
            except RankLost:
                self._member.lost()
            else:
                self._member.done(places)
        self._take()
        names = ", ".join(map(str, lost)) or "unknown"
        log.warning(f"Lost of {n_ranks} ranks in iteration {self._solver.iteration}: {names}; "
                    f"{self._communicator.n_ranks} go on")
        say_shares(self._solver)
        return self._solver

    def _do(self, act: Act) -> Sequence[Place]:
        if act is Act.SHRINK:
            self._shrink()
        elif act is Act.TELL:
            return self._communicator.allgather_objects(self._member.place)
        elif act is Act.FOLLOW:
            self._follow()
        elif act is Act.REBUILD:
            self._rebuild()
        elif act is Act.MEET:
            self._communicator.barrier()
        return ()

    def _shrink(self) -> None:
        self._communicator = self._communicator.shrink()
        self._communicator.install_excepthook()
        log.silence(self._communicator.rank != 0)

    def _follow(self) -> None:
        """Take the step that another rank has taken: the rebuilt solver, or the update whose gradients are here."""
        if self._rebuilt is not self._solver:
            self._take()
        else:
            self._solver.update()

    def _rebuild(self) -> None:
        self._rebuilt = self._solver
        self._solver.strategy.abandon()
        self._solver.close()
        made = self._build(self._communicator)
        take_over(made, self._solver)
        self._rebuilt = made

    def _take(self) -> None:
        self._rebuilt.member = self._member
        self._solver = self._rebuilt
