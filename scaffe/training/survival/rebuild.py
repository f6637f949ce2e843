"""A rank takes over from what it was when others were lost: parameters, histories, place in the data."""

from __future__ import annotations

from scaffe.training.survival.survivor import Survivor


def take_over(new: Survivor, old: Survivor | None) -> None:
    """Give a rank all that those that are left have. Called by all of them, after the same update.

    Args:
        new: on the ranks that are left and those that have come in, not yet running.
        old: what this rank was, on all ranks that there were; None where it has just come in.
    """
    ranks = new.world
    numbers = ranks.allgather_objects(None if old is None else old.world.rank)
    left = [number for number in numbers if number is not None]
    giving = ranks.split(None if old is None else 0)  # those that have come in last are in no communicator of the rest
    found = ranks.bcast_object(None if old is None or giving is None else old.remains(left, giving))
    everyone = ranks.allgather_objects(None if old is None else old.progress())
    progress = min(filter(None, everyone), key=lambda progress: progress.iteration)
    new.follow(old, progress)
    if progress.n_histories and not all(part.is_whole for part in found):
        new.load_saved_histories()
    for part in found:
        is_giver = old is not None and old.world.rank == part.giver
        new.load(part, old.remaining(part) if is_giver and old is not None else None, numbers.index(part.giver),
                 progress)
