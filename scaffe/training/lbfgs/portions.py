"""Portions of a batch: which replica computes which, and backup copies for stragglers. No MPI, no clock here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LATE = 1.5
"""A portion is late when it has been out for so many times what its replica usually takes."""
NEW = 0.3
"""Weight of the newest time in a replica's mean, which forgets."""
PATIENCE, LEAST_PATIENCE = 4.0, 0.5
"""A bundle is overdue after so many times what a portion and its way usually take, and so many seconds at least."""


class StragglerStatistics:
    """How long each replica takes for a portion: decides who is late, and who is too slow to begin another one.

    Attributes:
        n_done: portions computed by each replica, those that did not count included.
        seconds: that each replica has spent on them.
    """

    def __init__(self) -> None:
        self.n_done: dict[int, int] = {}
        self.seconds: dict[int, float] = {}
        self._usual: dict[int, float] = {}
        self._way = 0.0  # seconds that a bundle is on its way

    def took(self, replica: int, seconds: float) -> None:
        self.n_done[replica] = self.n_done.get(replica, 0) + 1
        self.seconds[replica] = self.seconds.get(replica, 0.0) + seconds
        usual = self._usual.get(replica, seconds)
        self._usual[replica] = usual + NEW * (min(seconds, 4 * usual) - usual)  # one long stop says little of speed

    def arrived(self, seconds: float) -> None:
        self._way = max(seconds, self._way + NEW * (seconds - self._way))

    def is_overdue(self, replica: int, since: float, n_fenced: int, now: float) -> bool:
        """Whether the sender of a bundle that left at ``since`` seems to have stopped. ``n_fenced``: how often this was
        said in the step: patience doubles each time, so that no link is too slow."""
        usual = self._way + self.usual(replica)
        return now - since >= max(PATIENCE * usual, LEAST_PATIENCE) * (1 << n_fenced)

    def usual(self, replica: int) -> float:
        """Seconds that a replica usually takes; before its first portion the slowest other's, 0 if there is none."""
        known = self._usual.get(replica)
        return max(self._usual.values(), default=0.0) if known is None else known

    def is_late(self, replicas: Iterable[int], since: float, now: float) -> bool:
        """Whether a portion is late that these replicas compute, the last of them since ``since``."""
        return now - since >= LATE * max((self.usual(replica) for replica in replicas), default=0.0)

    def is_too_slow(self, replica: int, n_waiting: int, busy: Mapping[int, float], now: float) -> bool:
        """Whether the others would compute everything that waits before this replica had computed one portion.
        ``busy``: the others that compute, and since when. Those that are late do not count."""
        others = [self.usual(name) for name, since in busy.items() if not self.is_late([name], since, now)]
        rate = sum(1 / seconds for seconds in others if seconds)
        return bool(rate) and self.usual(replica) > n_waiting / rate + max(others)


Bundle = tuple[int, ...]
"""Portions, in the order in which they were finished."""


@dataclass
class _Replica:
    """What is known of one replica in a step.

    Attributes:
        computing, since: the portion that it computes, and since when; None for none.
        bundle: finished portions that it has not sent.
        sent: bundles on their way, and since when.
    """

    computing: int | None = None
    since: float = 0.0
    bundle: list[int] = field(default_factory=list)
    sent: dict[Bundle, float] = field(default_factory=dict)


class Portions:
    """Assigns the portions of one step to replicas.

    Attributes:
        counted: the portions that count, whose gradients the shards have.
        n_again: portions given out again while another replica had them, in all steps.
        n_dropped: results that came too late to count, in all steps.
        n_fenced: replicas that stood still while others waited for their bundles, in all steps.
    """

    def __init__(self, per_bundle: int, pace: StragglerStatistics) -> None:
        self.per_bundle, self.pace = per_bundle, pace
        self.counted: set[int] = set()
        self.n_again = self.n_dropped = self.n_fenced = 0
        self._n_fenced = 0  # in this step
        self._held: set[int] = set()  # portions in bundles, whether on their way or not
        self._n_portions = 0
        self._waiting: set[int] = set()
        self._replicas: dict[int, _Replica] = {}
        self._homes: dict[int, int] = {}
        self._last: dict[int, int] = {}  # by replica: the portion that it was given last

    @property
    def replicas(self) -> list[int]:
        return sorted(self._replicas)

    @property
    def is_complete(self) -> bool:
        return len(self.counted) == self._n_portions

    def join(self, replica: int) -> None:
        """A replica takes part from now on; one that does already starts anew."""
        self.leave(replica)
        self._replicas[replica] = _Replica()

    def leave(self, replica: int) -> list[Bundle]:
        """Take back from a replica that is dead, or taken for dead, what it has not delivered: it waits again.
        Returns the bundles on their way from it, which must not count any more."""
        gone = self._replicas.pop(replica, None)
        if gone is None:
            return []
        lost = [*gone.bundle, *(p for bundle in gone.sent for p in bundle)]
        self._waiting.update(lost)
        self._held.difference_update(lost)
        if gone.computing is not None:
            self._release(gone.computing)
        return list(gone.sent)

    def fence(self, now: float) -> list[int]:
        """Take stopped replicas for dead: no portion waits, and a bundle of theirs is overdue.

        Nobody can give its portions to others without that, since a bundle counts whole or not at all. A replica that
        moves again joins again, once it has forgotten what it has not delivered.
        Returns them, ascending."""
        still = [] if self._waiting else [
            name for name in self.replicas if self._replicas[name].sent
            and self.pace.is_overdue(name, min(self._replicas[name].sent.values()), self._n_fenced, now)]
        for name in still:
            self.leave(name)
        self._n_fenced += bool(still)
        self.n_fenced += len(still)
        return still

    def begin(self, n_portions: int) -> None:
        """Begin a step: all portions wait, and what replicas still do is of no use.

        Portions are at home at who computed them last; at first each replica is home to a run of them.
        """
        self.counted, self._waiting, self._n_portions = set(), set(range(n_portions)), n_portions
        self._held, self._n_fenced = set(), 0
        for name in self._replicas:
            self._replicas[name] = _Replica()
        if len(self._homes) != n_portions and self._replicas:
            n = len(self._replicas)
            self._homes = {p: self.replicas[p * n // n_portions] for p in range(n_portions)}
            self._last = {}

    def next(self, replica: int, now: float) -> int | None:
        mine = self._replicas[replica]
        portion = self._fresh(replica, now) if self._waiting else self._again(replica, now)
        if portion is not None:
            self._waiting.discard(portion)
            mine.computing, mine.since, self._last[replica] = portion, now, portion
        return portion

    def finished(self, replica: int, portion: int, now: float) -> bool:
        """Note that a replica has computed a portion. Returns whether its result counts, and goes into its bundle.

        It does not where the replica was taken for dead since it was given the portion.
        """
        mine = self._replicas.get(replica)
        if mine is None or mine.computing != portion:
            self.n_dropped += 1
            return False
        self.pace.took(replica, now - mine.since)
        mine.computing = None
        if portion in self.counted or portion in self._held:
            self.n_dropped += 1
            return False
        self._waiting.discard(portion)
        self._held.add(portion)
        mine.bundle.append(portion)
        self._homes[portion] = replica
        return True

    def due(self) -> list[int]:
        return [name for name in self.replicas if (bundle := self._replicas[name].bundle)
                and (len(bundle) >= self.per_bundle or not self._waiting)]

    def sends(self, replica: int, now: float) -> Bundle:
        """A replica sends its bundle. Returns the portions in it."""
        mine = self._replicas[replica]
        bundle = tuple(mine.bundle)
        mine.bundle = []
        mine.sent[bundle] = now
        return bundle

    def delivered(self, replica: int, bundle: Bundle, now: float) -> bool:
        mine = self._replicas.get(replica)
        if mine is None or bundle not in mine.sent:
            return False
        self.pace.arrived(now - mine.sent.pop(bundle))
        self._held.difference_update(bundle)
        self.counted.update(bundle)
        return True

    def _release(self, portion: int) -> None:
        """Have a portion wait again that a replica no longer computes, unless another computes, holds or sent it."""
        others = any(r.computing == portion for r in self._replicas.values())
        if not others and portion not in self.counted and portion not in self._held:
            self._waiting.add(portion)

    def _fresh(self, replica: int, now: float) -> int | None:
        """A portion that nobody computes: one that this replica had before, else the last of the longest other list."""
        busy = {name: r.since for name, r in self._replicas.items() if name != replica and r.computing is not None}
        if self.pace.is_too_slow(replica, len(self._waiting), busy, now):
            return None
        own = sorted(p for p in self._waiting if self._homes.get(p) == replica)
        if own:
            after = self._last.get(replica, -1)
            return next((p for p in own if p > after), own[0])
        by_home: dict[int, list[int]] = {}
        for portion in sorted(self._waiting):
            by_home.setdefault(self._homes.get(portion, -1), []).append(portion)
        return max(by_home.values(), key=len)[-1]

    def _again(self, replica: int, now: float) -> int | None:
        """A backup copy: of the late portions one that the fewest replicas compute, of these the oldest."""
        out: dict[int, dict[int, float]] = {}  # by portion, who computes it since when
        for name, other in self._replicas.items():
            if other.computing is not None and name != replica:
                out.setdefault(other.computing, {})[name] = other.since
        late = {portion: list(since.values()) for portion, since in out.items()
                if portion not in self.counted and portion not in self._held
                and self.pace.is_late(since, max(since.values()), now)}
        if not late:
            return None
        self.n_again += 1
        return min(late, key=lambda portion: (len(late[portion]), min(late[portion]), portion))
