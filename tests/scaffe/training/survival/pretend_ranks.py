"""Ranks that run survival.member in one process, over a network in which anybody may die at any moment.

A meeting's outcome is each rank's own: once all have come it may still fail on any of them where a member has died, or
where another one has revoked the communicator. Shrinking gives the same communicator to all that call it; whoever of it
dies later is found out in the next call.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from scaffe.training.survival.member import Act, Member


@dataclass
class Comm:
    """A communicator: who is in it, and who has come to its n-th call with what."""

    members: frozenset[int]
    is_revoked: bool = False
    came: dict[int, dict[int, object]] = field(default_factory=dict)
    shrinking: set[int] = field(default_factory=set)
    child: Comm | None = None


class Rank:
    """A rank and its state machine; `advance` does one atomic thing of what it does next."""

    def __init__(self, number: int, world: World) -> None:
        self.number, self.world, self.member = number, world, Member(counts_updates=world.in_step)
        self.comm, self.calls, self.is_in = world.comm, 0, False
        self.values: list[str] = []  # the updates that its parameters have
        self.pending: list[str] | None = None  # what the next update would make of them
        self.rebuilt: tuple[Comm, list[str]] | None = None
        self.phase, self.home = "sum", world.comm
        self.n_met = 0  # how often it has met the others since it began, where ranks are not in step

    def collective(self, value: object = None) -> list[object] | str | None:
        """Comes to the communicator's next call. None while others are missing, "lost", or what all came with."""
        came = self.comm.came.setdefault(self.calls, {})
        if not self.is_in:
            self.is_in = True
            came[self.number] = value
        dead = any(member not in self.world.alive for member in self.comm.members)
        is_complete = len(came) == len(self.comm.members)
        if (self.comm.is_revoked or dead) and (not is_complete or self.world.luck.random() < 0.5):
            self.comm.is_revoked, self.is_in = True, False
            return "lost"
        if not is_complete:
            return None
        self.calls, self.is_in = self.calls + 1, False
        return [came[member] for member in sorted(came)]

    def advance(self) -> None:
        """Does the next thing."""
        getattr(self, self.member.act.value)()

    def train(self) -> None:
        """Iterations: sums of gradients, the meeting, the update; then all know that all have it."""
        if not self.world.in_step:
            self.train_freely()
            return
        if len(self.values) >= self.world.n_updates:
            self.say_goodbye()
            return
        found = self.collective(f"{self.number}@{len(self.values)}")
        if found == "lost":
            self.phase = "sum"
            self.member.lost()
        elif found is not None and self.phase == "sum":
            self.world.note_reported(self)  # all have come here: whoever has taken an update before is not alone
            self.pending, self.phase = [*self.values, "+".join(map(str, found))], "meet"
            self.member.prepared()
        elif found is not None:
            self.update()
            self.member.taken()
            self.phase = "sum"

    def train_freely(self) -> None:
        """Iterations of its own; all meet when they begin and after every third; it looks for losses now and then."""
        lost = self.comm.is_revoked or not self.comm.members <= self.world.alive
        if lost and self.world.luck.random() < 0.3:
            self.comm.is_revoked, self.is_in = True, False
            self.member.lost()
        elif self.n_met == 0 or (len(self.values) >= 3 * self.n_met and len(self.values) < self.world.n_updates):
            found = self.collective()
            self.n_met += found not in (None, "lost")
            if found == "lost":
                self.member.lost()
        elif len(self.values) >= self.world.n_updates:
            self.say_goodbye()
        else:
            self.member.prepared()
            self.values = [*self.values, f"{self.number}@{len(self.values)}"]
            self.member.taken()

    def say_goodbye(self) -> None:
        """At the end all meet once more; who has leaves, and is as good as dead to those that have not noticed."""
        found = self.collective()
        if found == "lost":
            self.phase = "sum"
            self.member.lost()
        elif found is not None:
            self.world.alive.discard(self.number)
            self.world.ended.append(self)

    def update(self) -> None:
        """Takes the step for which all is here: an update, or the rebuilt solver."""
        if self.rebuilt is not None:
            self.home, self.values = self.rebuilt
            self.rebuilt, self.n_met = None, 0
        else:
            self.values, self.pending = self.pending, None

    def shrink(self) -> None:
        """Waits until all that are alive have come; the first one to find that so makes the new communicator."""
        self.comm.is_revoked = True
        self.comm.shrinking.add(self.number)
        if self.comm.child is None and self.comm.members & self.world.alive <= self.comm.shrinking:
            self.comm.child = Comm(self.comm.members & self.world.alive)
            self.world.made.append(self.comm.child)
        if self.comm.child is not None:
            self.comm, self.calls, self.is_in = self.comm.child, 0, False
            self.member.done()

    def tell(self) -> None:
        """Tells and hears places."""
        self._together(self.member.place)

    def follow(self) -> None:
        """Takes the step that another has taken."""
        self.update()
        self.member.done()

    def rebuild(self) -> None:
        """All load the parameters of the lowest rank, which are as new as anybody's."""
        self.pending = self.rebuilt = None
        found = self.collective(list(self.values))
        if found == "lost":
            self.member.lost()
        elif found is not None:
            if self.world.in_step:
                self.world.check_alike(found)
            self.rebuilt = self.comm, list(min(found, key=len))  # from the iteration of the slowest
            self.member.done()

    def meet(self) -> None:
        """The meeting after which the rebuilt solvers are used."""
        if self._together() is not None:
            self.update()

    def _together(self, value: object = None) -> list[object] | None:
        found = self.collective(value)
        if found == "lost":
            self.member.lost()
            return None
        if found is not None:
            self.member.done(found)
        return found


class World:
    """All ranks, and who is alive."""

    def __init__(self, n_ranks: int, n_updates: int, seed: int, n_deaths: int, in_step: bool = True) -> None:
        self.luck, self.in_step = random.Random(seed), in_step
        self.comm = Comm(frozenset(range(n_ranks)))
        self.made, self.alive, self.n_updates = [self.comm], set(range(n_ranks)), n_updates
        self.reported: list[str] = []
        self.ranks = [Rank(number, self) for number in range(n_ranks)]
        span = 12 * n_ranks * n_updates
        self.deaths = sorted(self.luck.randrange(span) for _ in range(n_deaths))
        self.acts_at_death: list[Act] = []
        self.ended: list[Rank] = []

    def note_reported(self, rank: Rank) -> None:
        """A rank tells the user of all the updates that it has."""
        if len(rank.values) > len(self.reported):
            self.reported = list(rank.values)
        if rank.values[: len(self.reported)] != self.reported[: len(rank.values)]:
            raise AssertionError(f"rank {rank.number} has {rank.values}, reported were {self.reported}")

    def check_alike(self, everyone: list[list[str]]) -> None:
        """All that are left have come to the same parameters, and no reported update is missing."""
        if any(values != everyone[0] for values in everyone):
            raise AssertionError(f"ranks differ after they have told one another: {everyone}")
        if everyone[0][: len(self.reported)] != self.reported:
            raise AssertionError(f"reported {self.reported}, now {everyone[0]}")

    def run(self, most_turns: int = 200_000) -> None:
        """Until all that are alive are done. Raises AssertionError if that takes too long."""
        for turn in range(most_turns):
            while self.deaths and self.deaths[0] <= turn:
                self.deaths.pop(0)
                self.kill()
            if not self.alive:
                return
            self.ranks[self.luck.choice(sorted(self.alive))].advance()
        raise AssertionError(f"hangs: {[(n, self.ranks[n].member.act, self.ranks[n].phase) for n in self.alive]}")

    def kill(self) -> None:
        """Anybody but the last."""
        if self.alive and len(self.alive) + len(self.ended) > 1:
            victim = self.luck.choice(sorted(self.alive))
            self.acts_at_death.append(self.ranks[victim].member.act)
            self.alive.discard(victim)
