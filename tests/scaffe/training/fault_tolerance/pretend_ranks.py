"""Ranks that run the recovery state machine in one process, over a network in which anybody may die at any moment.

A meeting's outcome is each rank's own: once all have come it may still fail on any of them where a member has died, or
where another one has revoked the communicator. Shrinking gives the same communicator to all that call it; whoever of it
dies later is found out in the next call. Where lost ranks are replaced, the first rank starts others, which may fail,
come late, die on their way, or be left alone by the death of their host; they are taken in together or not at all.
Where some are servers, the others meet on a communicator of their own, which is revoked with that of all.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from scaffe.training.fault_tolerance.recovery_state_machine import Act, NothingLeft, RecoveryStateMachine
from scaffe.training.fault_tolerance.replacement import Next, Replacing


@dataclass
class Comm:
    """A communicator: who is in it, and who has come to its n-th call with what."""

    members: frozenset[int]
    is_revoked: bool = False
    came: dict[tuple[frozenset[int], int], dict[int, object]] = field(default_factory=dict)
    shrinking: set[int] = field(default_factory=set)
    child: Comm | None = None
    votes: dict[int, bool] = field(default_factory=dict)
    outcome: bool | None = None
    larger: Comm | None = None
    is_finished: bool = False


class Rank:
    """A rank and its state machine; `advance` does one atomic thing of what it does next."""

    def __init__(self, number: int, world: World) -> None:
        self.number, self.world, self.machine = number, world, RecoveryStateMachine(counts_updates=world.in_step)
        self.comm, self.calls, self.is_in = world.comm, Counter(), False
        self.is_server = number in world.servers
        self.values: list[str] = []  # the updates that its parameters have
        self.pending: list[str] | None = None  # what the next update would make of them
        self.rebuilt: tuple[Comm, list[str]] | None = None
        self.phase, self.home = "sum", world.comm
        self.n_met = 0  # how often it has met the others since it began, where ranks are not in step
        self.replacing, self.guests, self.stage = Replacing(0), list[Guest](), "bridge"
        self.note_comm()

    @property
    def is_first(self) -> bool:
        """Whether it is rank 0: new ones have higher numbers."""
        return self.number == min(self.comm.members)

    def note_comm(self) -> None:
        """Training begins on its communicator."""
        if self.is_first and not self.replacing.n_failures and not self.guests:
            self.replacing = Replacing(self.world.n_wanted)
        self.replacing.counted(len(self.comm.members))

    def are_ready(self) -> bool:
        """On rank 0: whether new ranks wait; starts them."""
        if not self.is_first:
            return False
        what = self.replacing.next()
        if what is Next.START and self.world.luck.random() < 0.2:
            self.replacing.failed()
        elif what is Next.START:
            self.replacing.started()
            self.guests = [self.world.invite(self)]
        elif self.guests and any(guest.number not in self.world.alive for guest in self.guests):
            self.drop_guests()
        elif self.guests and all(guest.is_ready for guest in self.guests):
            self.replacing.ready()
        return what is Next.TAKE_IN

    def drop_guests(self) -> None:
        """They leave."""
        for guest in self.guests:
            self.world.alive.discard(guest.number)
        self.guests = []
        self.replacing.failed()

    def collective(self, value: object = None, of_workers: bool = False) -> list[object] | str | None:
        """Comes to the communicator's next call. None while others are missing, "lost", or what all came with."""
        members = self.comm.members - (self.world.servers if of_workers else frozenset())
        came = self.comm.came.setdefault((members, self.calls[members]), {})
        if not self.is_in:
            self.is_in = True
            came[self.number] = value
        dead = any(member not in self.world.alive for member in members)
        is_complete = len(came) == len(members)
        if (self.comm.is_revoked or dead) and (not is_complete or self.world.luck.random() < 0.5):
            self.comm.is_revoked, self.is_in = True, False
            return "lost"
        if not is_complete:
            return None
        self.calls[members] += 1
        self.is_in = False
        return [came[member] for member in sorted(came)]

    def advance(self) -> None:
        """Does the next thing."""
        getattr(self, self.machine.act.value)()

    def train(self) -> None:
        """Iterations: sums of gradients, the meeting, the update; then all know that all have it."""
        if not self.world.in_step:
            self.train_freely()
            return
        if len(self.values) >= self.world.n_updates:
            self.say_goodbye()
            return
        if self.phase == "sum":
            found = self.collective(f"{self.number}@{len(self.values)}")
        else:
            found = self.collective(self.are_ready() if not self.is_in else None)
        if found == "lost":
            self.phase = "sum"
            self.machine.lost()
        elif found is not None and self.phase == "sum":
            self.world.note_reported(self)  # all have come here: whoever has taken an update before is not alone
            self.pending, self.phase = [*self.values, "+".join(map(str, found))], "meet"
            self.machine.prepared()
        elif found is not None:
            self.update()
            self.machine.taken()
            self.phase = "sum"
            if any(found):
                self.machine.joining()

    def train_freely(self) -> None:
        """Iterations of its own; all meet when they begin and after every third; it looks for losses now and then."""
        lost = self.comm.is_revoked or not self.comm.members <= self.world.alive
        if self.is_server:
            self.serve(lost)
        elif lost and self.world.luck.random() < 0.3:
            self.comm.is_revoked, self.is_in = True, False
            self.machine.lost()
        elif self.n_met == 0 or (len(self.values) >= 3 * self.n_met and len(self.values) < self.world.n_updates):
            found = self.collective(self.are_ready() if not self.is_in else None, of_workers=True)
            self.n_met += found not in (None, "lost")
            if found == "lost":
                self.machine.lost()
            elif found is not None and any(found) and self.n_met > 1:
                self.machine.joining()
        elif len(self.values) >= self.world.n_updates:
            self.say_goodbye()
        else:
            self.machine.prepared()
            self.values = [*self.values, f"{self.number}@{len(self.values)}"]
            self.machine.taken()

    def serve(self, lost: bool) -> None:
        """Waits for the word that the workers have come to the end; then it leaves, whoever is lost."""
        if self.comm.is_finished:
            if self.collective() is not None:
                self.leave()
        elif lost and self.world.luck.random() < 0.3:
            self.comm.is_revoked = True
            self.machine.lost()

    def say_goodbye(self) -> None:
        """At the end all meet once more, where there are servers the workers before that; who has leaves, and is as
        good as dead to those that have not noticed."""
        is_farewell = self.phase == "farewell" or not self.world.servers
        found = self.collective(of_workers=not is_farewell)
        if found == "lost":
            self.phase = "sum"
            self.machine.lost()
        elif found is not None and is_farewell:
            if self.guests:
                self.drop_guests()
            self.leave()
        elif found is not None:
            self.phase = "farewell"
            self.comm.is_finished |= self.is_first

    def leave(self) -> None:
        """It has come to the end."""
        self.world.alive.discard(self.number)
        self.world.ended.append(self)

    def join(self) -> None:
        """The bridge to the new ranks, then the agreement on it, which has one outcome."""
        if self.stage == "bridge":
            found = self.collective([guest.number for guest in self.guests])
            if found is not None:
                is_well = found != "lost" and all(n in self.world.alive for numbers in found for n in numbers)
                self.stage, self.is_well = "agree", is_well
                if is_well and self.comm.larger is None:
                    self.comm.larger = Comm(self.comm.members | {n for numbers in found for n in numbers})
        elif (outcome := self.agreed(self.is_well)) is not None:
            self.stage = "bridge"
            self.cross() if outcome else self.turn_back()

    def agreed(self, is_well: bool) -> bool | None:
        """Says whether it is well on this rank; whether it is on all, with nobody dead, is decided once."""
        comm = self.comm
        comm.votes.setdefault(self.number, is_well)
        if comm.outcome is None and comm.members & self.world.alive <= set(comm.votes):
            comm.outcome = comm.members <= self.world.alive and all(comm.votes.values())
        return comm.outcome

    def turn_back(self) -> None:
        """The bridge is not used."""
        self.comm.is_revoked, self.is_in = True, False
        if self.guests:
            self.drop_guests()
        self.machine.lost()

    def cross(self) -> None:
        """All ranks use the bridge; the first tells the new ones."""
        for guest in self.guests:
            guest.let_in(self.comm.larger)
        if self.guests:
            self.replacing.came()
        self.guests = []
        if self.comm.larger not in self.world.made:
            self.world.made.append(self.comm.larger)
        self.comm, self.calls, self.is_in = self.comm.larger, Counter(), False
        self.machine.done()

    def update(self) -> None:
        """Takes the step for which all is here: an update, or the rebuilt solver."""
        if self.rebuilt is not None:
            self.home, self.values = self.rebuilt
            self.rebuilt, self.n_met, self.phase = None, 0, "sum"
            self.note_comm()
        else:
            self.values, self.pending = self.pending, None

    def shrink(self) -> None:
        """Waits until all that are alive have come; the first one to find that so makes the new communicator."""
        self.comm.is_revoked = True
        if self.agreed(False) is None:
            return
        self.comm.shrinking.add(self.number)
        if self.comm.child is None and self.comm.members & self.world.alive <= self.comm.shrinking:
            self.comm.child = Comm(self.comm.members & self.world.alive)
            self.world.made.append(self.comm.child)
        if self.comm.child is not None:
            self.comm, self.calls, self.is_in = self.comm.child, Counter(), False
            self.machine.done()

    def tell(self) -> None:
        """Tells and hears places."""
        self._together(self.machine.place)

    def follow(self) -> None:
        """Takes the step that another has taken."""
        self.update()
        self.machine.done()

    def rebuild(self) -> None:
        """All load the parameters of the lowest rank, which are as new as anybody's."""
        self.pending = self.rebuilt = None
        if self.comm.members <= self.world.servers:
            self.give_up()
            return
        found = self.collective(None if self.machine.place.is_new or self.is_server else list(self.values))
        if found == "lost":
            self.machine.lost()
        elif found is not None:
            found = [values for values in found if values is not None]
            if self.world.in_step:
                self.world.check_alike(found)
            self.rebuilt = self.comm, list(min(found, key=len))  # from the iteration of the slowest
            self.machine.done()

    def meet(self) -> None:
        """The meeting after which the rebuilt solvers are used."""
        if self._together() is not None:
            self.update()

    def _together(self, value: object = None) -> list[object] | None:
        found = self.collective(value)
        if found == "lost":
            self.machine.lost()
            return None
        if found is not None:
            try:
                self.machine.done(found)
            except NothingLeft:
                self.give_up()
        return found

    def give_up(self) -> None:
        """Ends: nobody is left who could train on."""
        self.world.alive.discard(self.number)
        self.world.left_with_nothing.append(self)


class Guest(Rank):
    """A rank that has been started and is not yet taken in."""

    def __init__(self, number: int, world: World, host: Rank) -> None:
        self.host, self.is_ready, self.is_rank = host, False, False
        super().__init__(number, world)
        self.values = []

    def note_comm(self) -> None:
        """See Rank."""
        if self.is_rank:
            super().note_comm()

    def let_in(self, comm: Comm) -> None:
        """It is told that all have taken it in."""
        self.comm, self.is_rank = comm, True
        self.machine = RecoveryStateMachine.for_joining_rank(self.world.in_step)

    def advance(self) -> None:
        """Starts up, waits; leaves when its host is gone."""
        if self.is_rank:
            super().advance()
        elif self.host.number not in self.world.alive:
            self.world.alive.discard(self.number)
        else:
            self.is_ready = self.is_ready or self.world.luck.random() < 0.2


class World:
    """All ranks, and who is alive."""

    def __init__(self, n_ranks: int, n_updates: int, seed: int, n_deaths: int, in_step: bool = True,
                 replaces: bool = False, n_servers: int = 0) -> None:
        self.luck, self.in_step = random.Random(seed), in_step
        self.servers = frozenset(range(n_ranks - n_servers, n_ranks))
        self.comm = Comm(frozenset(range(n_ranks)))
        self.made, self.alive, self.n_updates = [self.comm], set(range(n_ranks)), n_updates
        self.reported: list[str] = []
        self.n_wanted, self.left_with_nothing = n_ranks if replaces else 0, list[Rank]()
        self.ranks = [Rank(number, self) for number in range(n_ranks)]
        span = 12 * n_ranks * n_updates
        self.deaths = sorted(self.luck.randrange(span) for _ in range(n_deaths))
        self.acts_at_death: list[Act | str] = []
        self.ended: list[Rank] = []

    def invite(self, host: Rank) -> Guest:
        """A new rank, which its host has started."""
        guest = Guest(len(self.ranks), self, host)
        self.ranks.append(guest)
        self.alive.add(guest.number)
        return guest

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
        raise AssertionError(f"hangs: {[(n, self.ranks[n].machine.act, self.ranks[n].phase) for n in self.alive]}")

    def kill(self) -> None:
        """Anybody but the last rank of the job; those on their way into it are none yet."""
        guests = {rank.number for rank in self.ranks if isinstance(rank, Guest) and not rank.is_rank}
        if not self.alive:
            return
        victim = self.luck.choice(sorted(self.alive))
        if len(self.alive - guests - {victim}) + len(self.ended) == 0:
            return
        self.acts_at_death.append("guest" if victim in guests else self.ranks[victim].machine.act)
        self.alive.discard(victim)
