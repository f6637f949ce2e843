"""What one machine has chosen among cuDNN's plans, another one with the same card takes over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaffe.layers.kernels import cuda
from scaffe.layers.kernels.cuda.cudnn import graphs, plans
from scaffe.layers.kernels.specs import ConvSpec
from tests import pretend

SPEC = ConvSpec((2, 8, 6, 5), 8, (3, 3), (1, 1), (1, 1), (1, 1))


@pytest.fixture
def cp(monkeypatch: Any) -> Any:
    """A pretend device with cuDNN, which knows no plan yet."""
    found = pretend.install(monkeypatch, with_cudnn=True)
    for cached in (graphs.frontend, plans.build):
        cached.cache_clear()
    yield found
    for cached in (graphs.frontend, plans.build):
        cached.cache_clear()


def on_machine(folder: Path, monkeypatch: Any) -> None:
    """From here on this process is on a machine whose cache is that folder."""
    monkeypatch.setenv("SCAFFE_CACHE", str(folder))
    plans.build.cache_clear()


def choices() -> dict[str, str]:
    """By the graph's name, the plan that was chosen."""
    heads = [json.loads(content.partition(b"\n")[0]) for content in cuda.kernel_choices().values()]
    return {head["name"]: head["plan"] for head in heads}


@pretend.needs_compiler
def test_a_machine_takes_over_what_another_has_chosen(cp: Any, monkeypatch: Any, tmp_path: Path) -> None:
    on_machine(tmp_path / "a", monkeypatch)
    plan = cuda.convolution(SPEC)
    x, w = cp.zeros(2 * 8 * 6 * 5, np.float32), cp.zeros((8, 8, 3, 3), np.float32)
    plan.forward(x, w, None, cp.zeros(2 * 8 * 6 * 5, np.float32))
    given, first = cuda.kernel_choices(), choices()
    assert len(first) == len(given) >= 1

    on_machine(tmp_path / "b", monkeypatch)  # where another plan would be the fastest
    monkeypatch.setattr(plans, "choose", lambda seconds, workspaces: len(seconds) - 1)
    cuda.convolution(SPEC).forward(x, w, None, cp.zeros(2 * 8 * 6 * 5, np.float32))
    assert set(choices()) == set(first)

    cuda.adopt_kernel_choices(given)
    assert choices() == first
    monkeypatch.setattr(plans, "choose", pytest.fail)
    on_machine(tmp_path / "b", monkeypatch)  # the next run: it builds the other machine's plans
    cuda.convolution(SPEC).forward(x, w, None, cp.zeros(2 * 8 * 6 * 5, np.float32))
    assert cuda.kernel_choices() == given


def test_another_cards_choices_and_damaged_ones_are_left_out(cp: Any, monkeypatch: Any, tmp_path: Path) -> None:
    on_machine(tmp_path / "a", monkeypatch)
    plans.keep(f"{plans.machine()}, a graph", plans.Choice("fast", b"kernels"))
    plans.keep(f"another card{plans.machine()}, a graph", plans.Choice("fast"))
    given = cuda.kernel_choices()
    assert [head["name"] for head in (json.loads(text.partition(b"\n")[0]) for text in given.values())] == [
        f"{plans.machine()}, a graph"]
    on_machine(tmp_path / "b", monkeypatch)
    cuda.adopt_kernel_choices({**given, "strange": b"no head", "other": b'{"name": "another card, a graph"}\n'})
    assert cuda.kernel_choices() == given
    assert plans.find(f"{plans.machine()}, a graph") == plans.Choice("fast", b"kernels")


def test_nothing_is_chosen_without_cudnn(cp: Any, monkeypatch: Any) -> None:
    from scaffe.layers.kernels.cuda.cudnn import exchange

    monkeypatch.setattr(exchange, "frontend", lambda: None)
    assert cuda.kernel_choices() == {}
    cuda.adopt_kernel_choices({"a": b"b"})
