"""A rank that fails ends the job; of ranks that share an error the first says it, or whoever is left."""

import pytest

from scaffe.collectives import failure
from scaffe.collectives.errors import CommError
from scaffe.errors import ROOT_SPEAKS_FIRST_SECONDS, UserError


class Job:
    """Stands for a Communicator, and notes what happens."""

    def __init__(self, rank, monkeypatch):
        self.rank, self.n_ranks, self.happened = rank, 8, []
        monkeypatch.setattr(failure.time, "sleep", self.happened.append)

    def abort(self, code=1):
        self.happened.append(f"abort {code}")


def shared(rank_in_subset=None):
    error = CommError("too little", everywhere=True)
    error.rank_in_subset = rank_in_subset
    return error


@pytest.mark.parametrize(("error", "waited", "said"), [
    (UserError("mine"), [], "rank 3: mine\n"),
    (shared(), [ROOT_SPEAKS_FIRST_SECONDS + 3], "rank 3: too little\n"),
    (shared(rank_in_subset=0), [], "rank 3: too little\n"),
    (shared(rank_in_subset=1), [ROOT_SPEAKS_FIRST_SECONDS + 1], "rank 3: too little\n")])
def test_who_speaks_first(monkeypatch, capsys, error, waited, said):
    job = Job(3, monkeypatch)
    failure.report_and_abort(job, error)
    assert capsys.readouterr().err == said
    assert job.happened == [*waited, "abort 1"]


def test_rank_0_speaks_for_all(monkeypatch, capsys):
    job = Job(0, monkeypatch)
    failure.report_and_abort(job, shared())
    assert (capsys.readouterr().err, job.happened) == ("too little\n", ["abort 1"])


def test_a_job_ends_though_no_memory_is_left_to_say_why(monkeypatch):
    def lacking(*_):
        raise MemoryError

    job = Job(3, monkeypatch)
    monkeypatch.setattr(failure.traceback, "format_exception", lacking)
    failure.report_and_abort(job, ZeroDivisionError())
    assert job.happened == ["abort 1"]
