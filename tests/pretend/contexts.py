"""Contexts as CUDA 12 makes them: half a gigabyte a device, at the first call on it and at every ``cudaSetDevice``.

A thread begins with device 0 as its current one, so a call on a thread that chose no device makes a context there.
"""

from __future__ import annotations

import threading

made: set[tuple[int, str]] = set()
"""Every context in use: (device, name of the thread)."""
_local = threading.local()


def current_device() -> int:
    """This thread's: every thread begins with device 0."""
    return vars(_local).get("device", 0)


def is_bound() -> bool:
    """Whether this thread has chosen a device, and so has a context."""
    return "device" in vars(_local)


def use_device(number: int) -> None:
    """Be this thread's current device, which makes its context."""
    _local.device = number
    touch()


def touch() -> int:
    """A call that needs a context; the current device, on which there is one from now on."""
    number = current_device()
    made.add((number, threading.current_thread().name))
    return number


def devices() -> set[int]:
    """The devices on which this process has a context."""
    return {number for number, _ in made.copy()}  # other threads add to it


def forget() -> None:
    """Begin anew in this thread, as a process without contexts."""
    made.clear()
    vars(_local).pop("device", None)
