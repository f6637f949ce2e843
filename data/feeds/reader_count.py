"""How many readers a feed needs: decided from measured times, which the caller takes. No threads, no clock."""

from __future__ import annotations

from math import ceil

WINDOW = 8  # batches a decision looks at
SKIPPED = 2  # first batches, in whose time kernels are compiled and files opened
WAITS = 0.02  # of the time: a feed that waits for more takes another reader
RARELY = 0.002  # of the time: a feed that waits for less may do without one
GAIN = 0.02  # by which a reader must shorten a batch's time to stay
TELLS = 0.15  # of the time: reading that takes more may slow the cores that compute, and more readers all of them alike
QUIET = 4  # windows without a change after which the count counts as chosen, or fewer readers are tried


class _Pause:
    """Windows in which a step is not tried again; each time twice as many."""

    def __init__(self) -> None:
        self.left, self._next = 0, QUIET

    def begin(self) -> None:
        self.left, self._next = self._next, 2 * self._next


class ReaderCount:
    """Adds readers while the consumer waits for data, takes back those that do not help, parks those not needed.

    The first step goes to as many as the measured times ask for: a batch's reading time over the consumer's own time.
    Later ones add one at a time. Where nobody waits, but a net computes on all cores, one reader holds up the core that
    it shares, and with it all others: so one more is tried where reading takes much of the time. A step that does not
    shorten the time from batch to batch is taken back, as is one to fewer readers that makes the consumer wait or
    batches come later; the next one waits twice as long.

    Args:
        most: the most readers there may be.

    Attributes:
        n: readers that work now.
        choice: once the count has held: what was chosen, in a sentence; until then "".
    """

    def __init__(self, most: int) -> None:
        self.n, self._most = 1, max(1, most)
        self.choice = ""
        self._n_batches = 0
        self._waited = self._total = self._made = 0.0  # seconds of this window
        # the count before the last step, its seconds a window, and what a step that does not help begins
        self._trial: tuple[int, float, _Pause] | None = None
        self._has_stepped = False
        self._n_quiet = self._n_idle = 0  # windows without a change; without waiting
        self._waits, self._shares = _Pause(), _Pause()  # of steps for a net that waits, or that shares its cores
        self._idle_needed = QUIET  # windows without waiting before one is parked

    def after_batch(self, waited: float, total: float, made: float) -> int:
        """Take a batch's times into account.

        Args:
            waited: seconds that the consumer waited for it.
            total: seconds since it had the batch before.
            made: seconds that readers, all together, have worked since then.

        Returns:
            ``n``, perhaps changed.
        """
        self._n_batches += 1
        if self._n_batches > SKIPPED:
            self._waited, self._total, self._made = self._waited + waited, self._total + total, self._made + made
            if (self._n_batches - SKIPPED) % WINDOW == 0:
                self._end_window()
        return self.n

    def stay_within(self, most: int) -> int:
        """There is no room for more readers than these. Returns ``n``, which is at most that from now on."""
        self._most, self._trial = max(1, most), None
        self.n = min(self.n, self._most)
        return self.n

    def _end_window(self) -> None:
        n, share = self.n, self._waited / max(self._total, 1e-9)
        if self._trial is not None:
            self._judge(share, *self._trial)
        else:
            self._step(share)
        self._n_quiet = self._n_quiet + 1 if self.n == n else 0
        if self._n_quiet == QUIET and not self.choice:
            made, total = (1000 * seconds / WINDOW for seconds in (self._made, self._total))
            self.choice = (f"{self.n} of at most {self._most} readers: a batch takes {made:.3g} ms to read and comes "
                           f"every {total:.3g} ms, of which the net waits {share:.1%}")
        self._waited = self._total = self._made = 0.0

    def _step(self, share: float) -> None:
        """Add or park readers after a window in which the consumer waited for this share of the time."""
        for pause in (self._waits, self._shares):
            pause.left = max(0, pause.left - 1)
        self._n_idle = self._n_idle + 1 if share < RARELY else 0
        if share > WAITS and self.n < self._most and not self._waits.left:
            self._change(self._wanted(), self._waits)
        elif self._n_idle >= self._idle_needed and self.n > 1:
            self._change(self.n - 1, self._waits)
        elif self._made > TELLS * self._total and self.n < self._most and not self._shares.left:
            self._change(self.n + 1, self._shares)

    def _wanted(self) -> int:
        """The count that the times ask for the first time; one more later on."""
        own = max(self._total - self._waited, self._made / self._most)
        asked = self.n + 1 if self._has_stepped else max(self.n + 1, ceil(self._made / own))
        self._has_stepped = True
        return min(self._most, asked)

    def _change(self, n: int, pause: _Pause) -> None:
        self._trial, self._n_idle, self.n = (self.n, self._total, pause), 0, n

    def _judge(self, share: float, before: int, seconds: float, pause: _Pause) -> None:
        """Keep the last step, or take it back."""
        self._trial = None
        if self.n < before:
            fewer_do = share <= RARELY and self._total <= (1 + GAIN) * seconds
            self.n = self.n if fewer_do else before
            self._idle_needed = QUIET if fewer_do else 2 * self._idle_needed
        elif self.n > before and self._total > (1 - GAIN) * seconds:
            self.n = before
            pause.begin()
