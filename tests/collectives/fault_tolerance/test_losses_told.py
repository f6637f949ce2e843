"""What fails while a loss is on its way has failed by it; what this package raises by itself has not."""

import pickle
import threading

import pytest

from scaffe.collectives.errors import CommError, RankLost
from scaffe.collectives.fault_tolerance import ulfm
from scaffe.collectives.fault_tolerance.losses import Losses


@pytest.fixture
def losses(monkeypatch):
    """Of rank 0, which has heard nothing yet, and will hear within the second."""
    monkeypatch.setattr(ulfm, "is_loss", lambda error: False)
    made = Losses.__new__(Losses)
    made.fault, made.has_loss, made._lock = "", False, threading.Lock()
    made.heard = True
    made.ranks, made._is_found_soon = lambda: (), lambda: made.heard
    made.error = lambda: RankLost(0, [1])
    return made


@pytest.mark.parametrize("error", [pickle.UnpicklingError("invalid load key"), EOFError(), ValueError("negative count"),
                                   MemoryError(), UnicodeDecodeError("utf-8", b"x", 0, 1, "garbage")])
def test_what_cannot_be_unpickled_is_a_loss_where_one_is_heard_of(losses, error):
    assert isinstance(losses.as_rank_lost(error), RankLost)
    losses.heard = False
    assert losses.as_rank_lost(error) is error


def test_a_mistake_stays_one_and_waits_for_no_news(losses):
    losses._is_found_soon = pytest.fail
    mistake = CommError("ranks disagree")
    assert losses.as_rank_lost(mistake) is mistake


def test_once_a_loss_is_known_everything_is_one(losses):
    losses.has_loss = True
    assert isinstance(losses.as_rank_lost(CommError("ranks disagree")), RankLost)
