"""Both ways between memory and a spill file, which a disk goes at once."""

from __future__ import annotations

from functools import partial

from scaffe.nets.memory.plans.iteration import Bandwidth
from scaffe.nets.memory.tier.below import BACK, OUT, Record
from scaffe.nets.memory.tier.disk_lane import DiskLane
from scaffe.nets.memory.tier.disk_seconds import DiskClock
from scaffe.nets.memory.tier.spill_file import SpillFile


class DiskLanes:
    """What leaves waits for nothing that comes back, nor the other way round.

    Args:
        file: the file.

    Attributes:
        out, back: the lanes.
        record: see ArrayMover.
    """

    def __init__(self, file: SpillFile) -> None:
        self._clock = DiskClock()
        self.record: Record | None = None
        self.out, self.back = (
            DiskLane(move, f"scaffe-{way}", partial(self._clock, number), partial(self._show, way))
            for number, (way, move) in enumerate(((OUT, file.write), (BACK, file.read))))

    def bandwidth(self) -> Bandwidth | None:
        """Bytes a second that each way would have alone, of all moves so far; None: one had none."""
        if not (self.out.n_bytes and self.back.n_bytes):
            return None
        out, back = self._clock.seconds
        return Bandwidth(self.out.n_bytes / out, self.back.n_bytes / back)

    def close(self) -> None:
        """End the threads, after the pieces that they are at."""
        for lane in (self.out, self.back):
            lane.close()

    def _show(self, way: str, label: str, start: float, end: float) -> None:
        if self.record is not None:
            self.record(way, label, start, end)
