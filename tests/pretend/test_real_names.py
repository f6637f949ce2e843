"""What the pretend CuPy has, the real one has too, and its runtime's calls take as many arguments. Needs no driver."""

from __future__ import annotations

import inspect
import re
import warnings
from typing import Any

import pytest

from tests import pretend

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that it finds no CUDA
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

OURS = {"forget", "Settings", "settings", "add", "drain", "gate", "query", "take",
        "refuse_in_capture"}
"""What the pretend one's parts call of one another."""
CLASSES = ("ndarray", "RawModule", "RawKernel", "cuda.Stream", "cuda.Event", "cuda.Device", "cuda.MemoryPool",
           "cuda.MemoryPointer", "cuda.UnownedMemory")
runtime = cupy.cuda.runtime


def found_in(module: Any, path: str) -> Any:
    """The thing of a dotted name."""
    for name in filter(None, path.split(".")):
        module = getattr(module, name)
    return module


def shown(thing: Any) -> set[str]:
    """Public names of a module or a class, of a class' bases too."""
    names = set(vars(thing)) if not isinstance(thing, type) else {n for c in thing.__mro__[:-1] for n in vars(c)}
    return {name for name in names if not name.startswith("_")} - OURS


@pytest.mark.parametrize("path", ["", "cuda", "cuda.runtime", *CLASSES])
def test_the_real_one_has_every_name(path: str) -> None:
    ours, real = found_in(pretend.make()["cupy"], path), found_in(cupy, path)
    lacking = [name for name in sorted(shown(ours)) if not hasattr(real, name)]
    assert not lacking


def real_parameters(function: Any) -> int | None:
    """How many parameters a compiled function takes, by the signature in its documentation; None without one."""
    first = (function.__doc__ or "").splitlines()[:1]
    matched = re.match(r"\w+\((.*)\)", first[0]) if first else None
    return None if matched is None else len([word for word in matched[1].split(",") if word.strip()])


def test_the_runtimes_calls_take_as_many_arguments() -> None:
    ours = vars(pretend.make()["cupy.cuda.runtime"])
    n_compared = 0
    for name in sorted(shown(pretend.make()["cupy.cuda.runtime"])):
        if not inspect.isfunction(ours[name]) or real_parameters(getattr(runtime, name, None)) is None:
            continue
        n_compared += 1
        given = inspect.signature(ours[name]).parameters.values()
        if any(each.kind is each.VAR_POSITIONAL for each in given):
            continue
        least = sum(each.default is each.empty for each in given)
        wanted = real_parameters(getattr(runtime, name))
        assert least <= wanted <= len(given) or wanted == len(given), (name, wanted, len(given))
    assert n_compared > 10
