"""A rank that trains, as recovery sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from scaffe.collectives.communicator import Communicator
from scaffe.data.feeds.layer_feed import TRAIN
from scaffe.files import read_state
from scaffe.log import info, warning
from scaffe.training.checkpoint import load_histories, newest_state, read_on
from scaffe.training.fault_tolerance.recoverable import Given, Part, Progress, RecoverableRank
from scaffe.training.fault_tolerance.recovery_state_machine import RecoveryStateMachine
from scaffe.training.solver import Solver
from scaffe.training.strategies.roles import WORKER, Role


class Trainer(RecoverableRank):
    """A worker with its solver; see RecoverableRank."""

    kind = WORKER

    def __init__(self, solver: Solver, role: Role) -> None:
        self.solver, self.world, self._role = solver, role.world, role

    @property
    def machine(self) -> RecoveryStateMachine:
        """See RecoverableRank: the solver tells it of updates."""
        return self.solver.machine

    @machine.setter
    def machine(self, machine: RecoveryStateMachine) -> None:
        self.solver.machine = machine

    @property
    def iteration(self) -> int:
        return self.solver.iteration

    def run(self, are_ranks_ready: Callable[[], bool]) -> None:
        self.solver.are_ranks_ready = are_ranks_ready
        with self._role.ending_all(tolerates_rank_loss=True):
            self.solver.solve()
            self.solver.communicator.barrier()  # nobody leaves before all have the last update

    def update(self) -> None:
        self.solver.update()

    def abandon(self) -> None:
        self.solver.strategy.fault_tolerance.abandon()
        self.solver.close()

    def close(self) -> None:
        self.solver.close()

    def progress(self) -> Progress:
        solver = self.solver
        read = solver.shares[0].batches_read(solver.iteration, solver.param.iter_size) if solver.shares else None
        return Progress(solver.iteration, solver.rates, read, solver.net.params.dtype.name,
                        solver.updater.rule.n_histories)

    def recovery_sources(self, left: Collection[int], communicator: Communicator) -> list[Part]:
        return self.solver.strategy.fault_tolerance.recovery_sources(left, communicator)

    def recovery_values(self, part: Part) -> Given:
        return self.solver.strategy.fault_tolerance.recovery_values(part)

    def follow(self, old: Trainer | None, progress: Progress) -> None:
        solver = self.solver
        solver.iteration, solver.rates = progress.iteration, progress.rates
        if old is not None:
            solver.net.context.draws.from_bytes(old.solver.net.context.draws.to_bytes())
        read_on(solver, progress.batches_read)

    def load_saved_histories(self) -> None:
        path = self.solver.communicator.bcast_object(newest_state(self.solver.param.snapshot_prefix))
        if path is None:
            warning("The histories of lost ranks begin at zero: there is no snapshot, and no second copy is left")
            return
        warning(f"The histories of lost ranks are those of {path}: no second copy is left")
        load_histories(self.solver, read_state(path).history, path)

    def load(self, part: Part, given: Given | None, root: int, progress: Progress) -> None:
        place, params, kernels = part.interval, self.solver.net.params, self.solver.net.context.kernels
        if given is not None:
            params.data[place] = kernels.to_device(given[0])
        values = kernels.to_host(params.data[place])  # servers have no device
        self.world.bcast(values, root)
        params.data[place] = kernels.to_device(values)
        for index in range(progress.n_histories if part.is_whole else 0):
            values = np.zeros(place.stop - place.start, params.dtype) if given is None else given[1][index]
            self.world.bcast(values, root)
            self.solver.strategy.state.load_history(index, place.start, values)

    def say_shares(self) -> None:
        share = self.solver.shares[0]
        if not share.batch:
            return
        now, each = share.global_batch(TRAIN, share.batch), share.batch_elems(TRAIN, share.batch)
        if share.weak:
            info(f"Weak scaling: {each} images a rank as before, so the global batch shrinks to {now}; the learning "
                 "rate stays")
        else:
            info(f"Strong scaling: the global batch stays {now} images, at most {each} a rank now; the learning rate "
                 "stays")
