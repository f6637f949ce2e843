"""One engine's communication stream: what a collective does on the device runs on it, in order."""

from __future__ import annotations

from scaffe.collectives.cuda import device
from scaffe.collectives.cuda.device import Point

BEFORE_COMPUTE = -1  # a sum's blocks go before those of a long kernel of the caller's that wait for room


class Lane:
    """A device, its communication stream and a second stream for copies to the host, for one thread's collectives.

    Between `begin` and `end` the communication stream is the thread's current one. Nothing here waits for the device.
    """

    def __init__(self) -> None:
        """On the current device. Raises CommError without one."""
        self._cuda = device.load().cuda
        self.number = self._cuda.Device().id
        self.stream = self._cuda.Stream(non_blocking=True, priority=BEFORE_COMPUTE)
        self.copies = self._cuda.Stream(non_blocking=True, priority=BEFORE_COMPUTE)
        self._device = self._cuda.Device(self.number)

    def begin(self, after: Point | None) -> None:
        """A collective begins, which follows `after` on the device; no one else will."""
        if after is not None:
            after.hold_and_end(self.stream)
        self._device.__enter__()
        self.stream.__enter__()

    def end(self) -> Point:
        """The collective has queued all it does on the device; what it gives is there when this point is reached."""
        point = Point.now(self.stream)
        self.leave()
        return point

    def leave(self) -> None:
        """The thread's device and stream become what they were."""
        self.stream.__exit__(None, None, None)
        self._device.__exit__(None, None, None)

    def event(self) -> Point:
        """A point that `mark` sets, again and again."""
        return Point(self._cuda.Event(disable_timing=True))
