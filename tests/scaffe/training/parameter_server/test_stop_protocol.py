"""Workers that wait for nobody agree on the iteration to stop after, under random schedules and delays."""

import random
from collections import defaultdict, deque

import pytest

from scaffe.collectives.communicator import Communicator
from scaffe.training.parameter_server.stop_protocol import StopProtocol, StopStateMachine

SEEDS = range(400)


class Workers:
    """Workers without threads: which one acts next, and which link moves, is drawn.

    A worker may be any number of iterations ahead, but for every ``meets`` iterations, where all wait for all, and
    hear promises meanwhile, as they do within an iteration.
    """

    def __init__(self, seed):
        self.rng = rng = random.Random(seed)
        self.n, self.last, self.meets = rng.randint(1, 5), rng.randint(1, 30), rng.randint(1, 12)
        self.stops = [StopStateMachine(worker, self.n) for worker in range(self.n)]
        self.links = defaultdict(deque)
        self.done = [0] * self.n
        self.at_meeting = [0] * self.n
        self.speeds = [rng.choice([1, 1, 5]) for _ in range(self.n)]
        self.seen = [0] * self.n
        self.asked = []  # worker, level, iterations done then
        self.acted = [[] for _ in range(self.n)]
        self.programs = {worker: self.work(worker) for worker in range(self.n)}

    def run(self):
        waiting = dict.fromkeys(self.programs, lambda: True)
        while self.programs:
            moves = [("act", w) for w in self.programs for _ in range(self.speeds[w]) if waiting[w]()]
            moves += [("hear", w) for w in self.programs]
            moves += [("move", link) for link, queue in self.links.items() if queue]
            if not any(kind != "hear" for kind, _ in moves) and not self.would_say():
                raise RuntimeError(f"deadlock after {self.done}, promises {[s._heard for s in self.stops]}")
            kind, what = self.rng.choice(moves)
            if kind == "act":
                try:
                    waiting[what] = next(self.programs[what])
                except StopIteration:
                    del self.programs[what]
            elif kind == "hear":
                self.poll(what)
            else:
                self.stops[what[1]].hear(self.links[what].popleft())
        return self

    def would_say(self):
        before = {link: len(queue) for link, queue in self.links.items()}
        for worker in self.programs:
            self.poll(worker)
        return before != {link: len(queue) for link, queue in self.links.items()}

    def poll(self, worker):
        promise = self.stops[worker].ask(self.seen[worker])
        for other in range(self.n) if promise else ():
            if other != worker:
                self.links[worker, other].append(promise)

    def work(self, worker):
        stops = self.stops[worker]
        while self.done[worker] < self.last:
            if self.done[worker] % self.meets == 0:
                self.at_meeting[worker] += 1
                yield lambda: min(self.at_meeting[w] for w in self.programs) >= self.at_meeting[worker]
            stops.begin(self.done[worker])
            yield lambda: True
            if self.rng.random() < 0.02:
                self.seen[worker] = max(self.seen[worker], self.rng.randint(1, 2))
                self.asked.append((worker, self.seen[worker], self.done[worker]))
            n_done = self.done[worker] + 1
            self.poll(worker)
            yield lambda n_done=n_done: not stops.must_wait(n_done)
            due = stops.due(n_done)
            stops.begin(n_done)
            self.done[worker] = n_done
            if due:
                self.acted[worker].append((n_done, due))
                if self.seen[worker] <= due:
                    self.seen[worker] = 0
                if due == 2:
                    return
        self.at_meeting[worker] += 1
        yield lambda: min(self.at_meeting[w] for w in self.programs) >= self.at_meeting[worker]


@pytest.mark.parametrize("first", SEEDS[::100])
def test_all_workers_act_after_the_same_iteration(first):
    n_acted = 0
    for seed in range(first, first + 100):
        run = Workers(seed).run()
        assert all(acted == run.acted[0] for acted in run.acted), seed
        n_acted += len(run.acted[0])
        stopped = bool(run.acted[0]) and run.acted[0][-1][1] == 2
        assert all(done == (run.acted[0][-1][0] if stopped else run.last) for done in run.done), seed
        for n_done, level in run.acted[0]:
            assert any(asked == level and before < n_done for _, asked, before in run.asked), seed
        for _, level, before in run.asked:  # done, unless all ended before it could be
            late = any(n_done > before and done >= level for n_done, done in run.acted[0])
            assert late or stopped or max(run.done) == run.last, seed
    assert n_acted > 20


def test_a_worker_by_itself_stops_after_this_iteration():
    stops = StopStateMachine(0, 1)
    assert stops.ask(2) is None  # it has not begun
    stops.begin(7)
    assert stops.ask(0) is None
    assert stops.ask(2).limit == 8
    assert not stops.must_wait(8)
    assert (stops.due(7), stops.due(8), stops.due(9)) == (0, 2, 0)


def test_what_was_done_at_a_meeting_is_not_asked_for_again():
    """Though a worker hears the others between its iterations."""
    meeting = StopProtocol(Communicator.single())
    meeting.begin(0)
    done = []
    for n_done, level in enumerate((0, 2, 0, 0, 0), 1):
        done.append(meeting.agree(level, n_done - 1))
        meeting.poll()
    assert done == [0, 2, 0, 0, 0]
