"""The exceptions that the collective runtime raises for a caller's mistake or a peer's failure."""

from collections.abc import Sequence

from scaffe.errors import ExpectedError


class CommError(ExpectedError):
    """A collective cannot be carried out, or a peer does not answer: one line with what was expected and what came.

    Attributes:
        rank_in_subset: this rank's number in the communicator that the error is about, where that has some of the job's
            ranks alone; None where it has all, or ``everywhere`` is False.
    """

    rank_in_subset: int | None = None


class LostWhileStarting(CommError):
    """Ranks, perhaps rank 0, are lost before the job's first communicator is made."""


class RankLost(CommError):
    """Ranks are lost, and with them every call under way on their communicator; `Communicator.shrink` goes on.

    Attributes:
        ranks: those known to be lost, ascending; empty where it is not known yet which.
    """

    def __init__(self, rank: int, ranks: Sequence[int], how: str = "") -> None:
        """Args:
            rank: this one.
            ranks: see the class.
            how: what happened to them, in words.
        """
        self.ranks = tuple(ranks)
        who = f"rank{'s' * (len(self.ranks) > 1)} {', '.join(map(str, self.ranks))}" if ranks else "another rank"
        super().__init__(f"rank {rank}: {who} {'are' if len(self.ranks) > 1 else 'is'} lost{how}")
