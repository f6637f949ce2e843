"""The exceptions that the collective runtime raises for a caller's mistake or a peer's failure."""

from collections.abc import Sequence

from scaffe.errors import ExpectedError


class CommError(ExpectedError):
    """A collective that cannot be, or a peer that does not answer: one line with what was expected and what came.

    Attributes:
        rank_in_subset: this rank's number in the communicator that the error is about, where that has some of the job's
            ranks alone; None where it has all, or ``everywhere`` is False.
    """

    rank_in_subset: int | None = None


class LostWhileStarting(CommError):
    """Ranks, perhaps rank 0, are gone before the job's first communicator is made."""


class RankLost(CommError):
    """Ranks are gone; what was under way on their communicator is lost on every rank (`Communicator.shrink` goes on).

    Attributes:
        ranks: those that are known to be gone, ascending; empty where a rank that found out has not said whom.
    """

    def __init__(self, rank: int, ranks: Sequence[int], how: str = "") -> None:
        """Args:
            rank: this one.
            ranks: see the class.
            how: what became of them, in words.
        """
        self.ranks = tuple(ranks)
        who = f"rank{'s' * (len(self.ranks) > 1)} {', '.join(map(str, self.ranks))}" if ranks else "another rank"
        super().__init__(f"rank {rank}: {who} {'are' if len(self.ranks) > 1 else 'is'} lost{how}")
