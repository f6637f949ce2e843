"""Shared windows whose last views go in one thread while another one looks arrays up."""

from __future__ import annotations

import sys
import threading

import numpy as np

from scaffe.collectives.shared.window import SLICES_KEPT, Windows

N_WINDOWS = 300


class Alone:
    """The part of a communicator of one rank that windows use."""

    rank, size = 0, 1

    def allgather(self, thing: object) -> list[object]:
        return [thing]


def test_windows_go_while_another_thread_looks_up(hasty, monkeypatch) -> None:
    unraised: list[object] = []  # what finalizers raise ends nowhere else
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    windows = Windows(Alone(), Alone())
    kept = windows.allocate(SLICES_KEPT - 1)
    gone = [windows.allocate(1) for _ in range(N_WINDOWS)]
    places = [kept[first:] for first in range(kept.size)]
    thread = threading.Thread(target=gone.clear)
    thread.start()
    offsets = [windows.find(place).offset for place in places * 2]
    thread.join()
    assert not unraised
    assert offsets == list(range(kept.size)) * 2


def test_a_window_is_found_among_those_that_went_and_came() -> None:
    windows = Windows(Alone(), Alone())
    held = {number: windows.allocate(8) for number in range(20)}
    for number in range(20, 400):
        del held[number - 20 if number % 3 else max(held)]
        held[number] = windows.allocate(1 + number * 97 % 9000)
        held.setdefault(number - 19, windows.allocate(3))
        for array in held.values():
            found = windows.find(array)
            assert found is not None and (found.offset, found.addresses[0]) == (0, array.ctypes.data)
            assert windows.find(array[-1:]).offset == array.size - 1
    assert windows.find(np.zeros(3, np.uint8)) is None
