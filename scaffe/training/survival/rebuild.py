"""A new solver takes over from one whose ranks are no longer all there: parameters, histories, place in the data."""

from __future__ import annotations

import numpy as np

from scaffe.data.feeds.layer_feed import TRAIN
from scaffe.files import read_state
from scaffe.log import info, warning
from scaffe.training.checkpoint import load_histories, newest_state, read_on
from scaffe.training.solver import Solver
from scaffe.training.survival.holders import Part


def take_over(new: Solver, old: Solver | None) -> None:
    """Give a new solver all that the ranks that are left have. Called by all of them, after the same update.

    Args:
        new: on the ranks that are left and those that have come in, not yet running.
        old: this rank's, on all ranks that there were; None where it has just come in.
    """
    ranks = new.communicator
    numbers = ranks.allgather_objects(None if old is None else old.communicator.rank)
    left = [number for number in numbers if number is not None]
    giving = ranks.split(None if old is None else 0)  # those that have come in last are in no communicator of the rest
    found = ranks.bcast_object(None if old is None or giving is None else old.strategy.remains(left, giving))
    read = None if old is None or not old.shares else old.shares[0].batches_read(old.iteration, old.param.iter_size)
    new.iteration, new.rates, read = min(
        filter(None, ranks.allgather_objects(None if old is None else (old.iteration, old.rates, read))),
        key=lambda place: place[0])
    if not all(part.is_whole for part in found) and new.updater.rule.n_histories:
        _load_saved_histories(new)
    for part in found:
        is_giver = old is not None and old.communicator.rank == part.giver
        _send(new, part, old.strategy.remaining(part) if is_giver and old is not None else None,
              numbers.index(part.giver))
    if old is not None:
        new.net.context.draws.from_bytes(old.net.context.draws.to_bytes())
    new.net.scale_loss(new.shares[0].weight)
    read_on(new, read)


def _send(new: Solver, part: Part, given: tuple[np.ndarray, list[np.ndarray]] | None, root: int) -> None:
    """A part of parameters and histories, which root gives, to all."""
    place = part.interval
    if given is not None:
        new.net.params.data[place] = given[0]
    new.communicator.bcast(new.net.params.data[place], root)
    for index in range(new.updater.rule.n_histories if part.is_whole else 0):
        values = np.zeros(place.stop - place.start, new.net.params.dtype) if given is None else given[1][index]
        new.communicator.bcast(values, root)
        new.strategy.load_history(index, place.start, values)


def _load_saved_histories(new: Solver) -> None:
    """The newest snapshot's, where an owner and its copy are both gone."""
    path = new.communicator.bcast_object(newest_state(new.param.snapshot_prefix))
    if path is None:
        warning("The histories of lost ranks begin at zero: there is no snapshot, and no second copy is left")
        return
    warning(f"The histories of lost ranks are those of {path}: no second copy is left")
    load_histories(new, read_state(path).history, path)


def say_shares(solver: Solver) -> None:
    """Log which batch the ranks that are left have together."""
    share = solver.shares[0]
    if not share.batch:
        return
    now, each = share.global_batch(TRAIN, share.batch), share.batch_elems(TRAIN, share.batch)
    if share.weak:
        info(f"Weak scaling: {each} images a rank as before, so the global batch shrinks to {now}; the learning "
             "rate stays")
    else:
        info(f"Strong scaling: the global batch stays {now} images, at most {each} a rank now; the learning rate stays")
