"""A thread that the system has no room for is an error of one line."""

import threading

import pytest

from scaffe.errors import UserError
from scaffe.threads import Thread


def test_thread_for_which_there_is_no_room(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    with pytest.raises(UserError, match=r"^thread 'reader-3' cannot start: expected room .* \(ulimit -v, ulimit -u\)$"):
        Thread(print, "reader-3").start()


def test_thread_that_is_started_twice_is_a_defect():
    thread = Thread(lambda: None, "reader-3")
    thread.start()
    with pytest.raises(RuntimeError, match="once") as caught:
        thread.start()
    assert not isinstance(caught.value, UserError)
