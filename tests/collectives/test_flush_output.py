"""A rank that ends the job waits until the launcher has read its words, but not for ever."""

import os
from functools import partial
from types import SimpleNamespace

import pytest

from scaffe.collectives import failure as module


@pytest.fixture
def naps(monkeypatch):
    """The naps that are taken, which take no time."""
    naps = []
    monkeypatch.setattr(module.time, "sleep", naps.append)
    return naps


@pytest.fixture
def pipes():
    """Two pipes: [(read, write), ...]."""
    pipes = [os.pipe() for _ in range(2)]
    yield pipes
    for end in (end for pipe in pipes for end in pipe):
        os.close(end)


def test_it_waits_until_the_launcher_has_read_all(naps, pipes, monkeypatch):
    def nap(seconds):
        naps.append(seconds)
        if len(naps) in (3, 5, 8):
            os.read(pipes[0][0] if len(naps) == 3 else pipes[1][0], 4)

    monkeypatch.setattr(module.time, "sleep", nap)
    os.write(pipes[0][1], b"word")
    os.write(pipes[1][1], b"words")
    module.wait_until_read(*(write for _, write in pipes))
    assert len(naps) == 5 + 3  # "s" is left after the fifth


def test_a_launcher_that_reads_nothing_is_not_waited_for_any_longer(naps, pipes):
    os.write(pipes[1][1], b"word")
    module.wait_until_read(*(write for _, write in pipes))
    assert len(naps) == module.MOST_LOOKS


def test_files_and_what_is_closed_are_not_waited_for(naps, tmp_path):
    with (tmp_path / "log").open("wb") as file:
        file.write(b"words")
        file.flush()
        file.seek(0)  # so that there is something to read
        module.wait_until_read(file.fileno())
        descriptor = os.dup(file.fileno())
    os.close(descriptor)
    module.wait_until_read(descriptor)
    assert naps == []


@pytest.mark.parametrize("is_launched", [False, True])
def test_output_is_flushed_and_waited_for_under_a_launcher_alone(naps, monkeypatch, is_launched):
    seen = []
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(module.sys, name, SimpleNamespace(flush=partial(seen.append, name)))
    monkeypatch.setattr(module, "wait_until_read", lambda *descriptors: seen.append(descriptors))
    module.flush_output(is_launched)
    assert seen == ["stdout", "stderr", *[(1, 2)] * is_launched]
    assert len(naps) == is_launched
