"""What the tests that run on every rank share: failures that end the job, mistakes that are the same on all ranks."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scaffe.collectives import CommError


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure on one rank ends the job on all of them: the others would wait for it."""
    outcome = yield
    report = outcome.get_result()
    communicator = item.funcargs.get("communicator") if hasattr(item, "funcargs") else None
    if report.failed and communicator is not None and communicator.n_ranks > 1:
        sys.__stderr__.write(f"rank {communicator.rank}: {item.nodeid}\n{report.longreprtext}\n")
        communicator.abort(1)


@pytest.fixture
def last(communicator):
    """True on the last rank, the odd one out; needs two ranks."""
    if communicator.n_ranks < 2:
        pytest.skip("needs two ranks")
    return communicator.rank == communicator.n_ranks - 1


def one_message(communicator: Any, call: Callable[[], Any], ones: np.ndarray) -> str:
    """The one message that every rank's CommError carries; the next collective, of three ones, works."""
    with pytest.raises(CommError) as caught:
        call()
    messages = communicator.allgather_objects(str(caught.value))
    assert len(set(messages)) == 1
    assert caught.value.everywhere
    communicator.allreduce(ones)
    assert (ones == communicator.n_ranks).all()
    return messages[0]
