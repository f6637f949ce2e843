"""The schedule of pieces, driven by random events: order, slots and errors are a naive reader's."""

import numpy as np
import pytest

from scaffe.data.feeds.schedule import Schedule


class Run:
    """Random events on a schedule, beside what a reader of one batch after the other would give.

    Args:
        seed: of the events, and of which pieces, finishes and jobs fail.
    """

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.n_slots, self.piece_rows = int(self.rng.integers(1, 5)), int(self.rng.integers(1, 5))
        self.rows = self.rng.integers(1, 10, 20)
        bad = self.rng.integers(0, (20, 10), (self.rng.integers(3), 2))
        self.failing = {(int(batch), int(row)) for batch, row in bad}
        self.bad_finish, self.n_jobs = int(self.rng.integers(40)), int(self.rng.integers(1, 40))
        self.schedule = Schedule(self.n_slots)
        self.workers, self.made, self.given, self.over = [], {}, [], False

    def error_of(self, batch):
        """The first row that fails, as text; None: none does."""
        if batch == self.n_jobs:
            return "no job"
        rows = [row for number, row in self.failing if number == batch and row < self.rows[batch]]
        if rows:
            return f"piece {min(rows) // self.piece_rows}"
        return "finish" if batch == self.bad_finish else None

    def begin(self):
        if not self.schedule.may_begin or self.schedule.has_ended or self.schedule.n_begun == 20:
            return
        batch = self.schedule.n_begun
        assert batch < len(self.given) + self.n_slots  # its slot is free, but for the one the consumer holds
        if batch == self.n_jobs:
            self.schedule.fail(ValueError("no job"))
        else:
            self.made[batch] = np.zeros(self.rows[batch], int)
            self.schedule.begin(batch, int(self.rows[batch]), self.piece_rows)

    def take(self):
        piece = self.schedule.take()
        if piece is not None:
            assert piece.job == piece.batch
            self.workers.append(piece)

    def end(self):
        if not self.workers:
            return
        piece = self.workers.pop(int(self.rng.integers(len(self.workers))))
        if piece.rows is None:
            error = self.schedule.error_of(piece.batch)
            assert (self.made[piece.batch] == 1).all()  # each sample was made, once
            if error is None and piece.batch == self.bad_finish:
                error = ValueError("finish")
        else:
            self.made[piece.batch][piece.rows] += 1
            rows = range(piece.rows.start, piece.rows.stop)
            bad = any((piece.batch, row) in self.failing for row in rows)
            error = ValueError(f"piece {piece.rows.start // self.piece_rows}") if bad else None
        self.schedule.end(piece, error)

    def give(self):
        batch = len(self.given)
        self.schedule.n_freed = batch  # the one that the consumer held until now
        if batch in self.schedule.ready and not self.over:
            error = self.schedule.ready.pop(batch)
            self.over = error is not None
            self.given.append(None if error is None else str(error))

    def fork(self):
        for piece in self.workers:
            if piece.rows is not None:
                self.made[piece.batch][piece.rows] = 0
        self.workers = []
        self.schedule.take_back()

    def is_done(self):
        return self.over or len(self.given) == 20


@pytest.mark.parametrize("first", range(0, 2000, 200))
def test_any_course_of_events_gives_the_batches_in_order_and_the_first_error(first):
    for seed in range(first, first + 200):
        run = Run(seed)
        events, chances = [run.begin, run.take, run.end, run.give, run.fork], np.array([4, 8, 8, 4, 0.2])
        n_steps = 0
        while not run.is_done():
            run.rng.choice(events, p=chances / chances.sum())()
            n_steps += 1
            assert n_steps < 20_000, f"seed {seed} hangs at batch {len(run.given)}"
        n_expected = next((batch for batch in range(20) if run.error_of(batch)), 19) + 1
        assert run.given == [run.error_of(batch) for batch in range(n_expected)], seed


@pytest.mark.parametrize("seed", range(50))
def test_after_an_error_the_rest_ends(seed):
    """No thread waits for ever: has_ended comes once what is under way has ended."""
    run = Run(seed)
    run.n_jobs = 3
    for _ in range(2000):
        run.rng.choice([run.begin, run.take, run.end, run.give])()
    assert run.schedule.has_ended
    assert run.over
