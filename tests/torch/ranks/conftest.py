"""These tests run on every rank of an MPI job; tests/torch/test_torch.py starts the jobs."""

import sys

import pytest

from scaffe.collectives.launch import launched

collect_ignore_glob = [] if launched() else ["test_*.py"]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure on one rank ends the job on all of them: the others would wait for it."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        from scaffe.torch.rendezvous import world

        sys.__stderr__.write(f"rank {world().rank}: {item.nodeid}\n{report.longreprtext}\n")
        world().abort(1)


@pytest.fixture(scope="session", autouse=True)
def process_group():
    """The default group is ours; the job ends without taking it down, as programs often do."""
    import torch
    import torch.distributed as dist

    import scaffe.torch  # noqa: F401

    torch.set_num_threads(1)
    dist.init_process_group("scaffe")
    return dist.group.WORLD


@pytest.fixture(scope="session")
def gloo(process_group):
    """PyTorch's own backend on the same ranks, to compare with."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo")
