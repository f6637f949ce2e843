"""Sends what ``Copying`` decides of a shard's histories: the shard's side of its second copy."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.collectives.server.copies.copying import Copying
from scaffe.collectives.server.copies.stage import Stage
from scaffe.collectives.server.mail.messages import Copy


class Copier:
    """The copy of one shard, for the shard's thread.

    Args:
        copying: decides.
        stage: where pieces lie on their way; None where there is no copy.
        table_of: by batch, the table's number.
    """

    def __init__(self, copying: Copying, stage: Stage | None, table_of: Sequence[int]) -> None:
        self._copying, self._stage, self._table_of = copying, stage, table_of

    @property
    def is_under_way(self) -> bool:
        """Whether a piece is on its way."""
        return self._copying.is_under_way

    def must_wait(self, batch: int) -> bool:
        """Whether an update of the batch has to wait for the copy."""
        return self._copying.must_wait(self._table_of[batch])

    def made(self, batch: int) -> None:
        """The shard has made an update of a batch."""
        self._copying.made(self._table_of[batch])

    def begin(self) -> Copy | None:
        """What is to be sent now, if anything; from here on the histories may change."""
        number = self._copying.begin()
        if number is None or self._stage is None:
            return None
        self._stage.fill(number)
        return Copy(number)

    def kept(self) -> None:
        """The piece that was under way is in its place."""
        self._copying.kept()
