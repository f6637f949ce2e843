"""-threads auto: which numbers are tried, which is taken, by all ranks alike, and a run that takes one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scaffe.cli.main import main
from scaffe.training.ranks import N_PASSES, candidates, choose, fastest
from tests.scaffe.runs import losses, write_solver
from tests.scaffe.training.test_dividing import NET


@pytest.mark.parametrize(("most", "expected"), [(1, [1]), (2, [2, 1]), (7, [7, 3, 1]), (16, [16, 8, 4, 2, 1])])
def test_candidates(most: int, expected: list[int]) -> None:
    assert candidates(most) == expected


@pytest.mark.parametrize(("seconds", "best"), [
    ([{1: 2.0, 2: 1.5}], 2),
    ([{2: 1.5, 1: 1.5}], 1),
    ([{1: 2.0, 2: 1.0}, {1: 2.0, 2: 3.0}], 1),  # the slowest rank decides
    ([{4: 5.0, 2: 3.0, 1: 4.0}, {4: 1.0, 2: 3.5, 1: 4.0}], 2),
])
def test_the_slowest_rank_decides(seconds: list[dict[int, float]], best: int) -> None:
    assert fastest(seconds) == best


class FakeCpu:
    """Kernels whose passes take ``seconds`` by the number of threads that the net was built with; reading takes 10 s,
    the first pass 100 s more."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.now, self.n, self.n_closed, self._seconds = 0.0, 0, 0, seconds
        self.made: list[int] = []

    def set_threads(self, n: int) -> None:
        self.n = n

    def make(self) -> Any:
        net, n = SimpleNamespace(data_seconds=0.0, clear_param_diffs=lambda: None, n_passes=0), self.n
        self.made.append(n)

        def run() -> None:
            self.now += self._seconds[n] + 10 + (0 if net.n_passes else 100)
            net.data_seconds += 10
            net.n_passes += 1

        def close() -> None:
            assert net.n_passes == 1 + N_PASSES
            self.n_closed += 1

        net.forward_backward, net.close = run, close
        return net


class OneOfTwo:
    """Rank 0 of two; the other finds ``seconds`` and has ``most`` cores."""

    n_ranks, node_n_ranks = 2, 1

    def __init__(self, most: int, seconds: dict[int, float]) -> None:
        self._others = {int: most, dict: seconds, type(None): None}

    def allgather_objects(self, value: Any) -> list[Any]:
        return [value, self._others[type(value)]]


@pytest.mark.parametrize(("mine", "other", "best"), [
    ({4: 3.0, 2: 1.0, 1: 2.0}, {4: 1.0, 2: 1.0, 1: 1.0}, 2),
    ({4: 1.0, 2: 2.0, 1: 3.0}, {4: 9.0, 2: 5.0, 1: 4.0}, 1),
])
def test_ranks_choose_alike(monkeypatch: pytest.MonkeyPatch, mine: dict[int, float], other: dict[int, float],
                            best: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    cpu = FakeCpu(mine)
    assert choose(OneOfTwo(4, other), cpu, cpu.make, lambda: cpu.now) == best  # type: ignore[arg-type]
    assert (cpu.made, cpu.n, cpu.n_closed) == ([4, 2, 1], best, 3)


def test_one_core_needs_no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = FakeCpu({})
    assert choose(OneOfTwo(1, {}), cpu, cpu.make, lambda: cpu.now) == 1  # type: ignore[arg-type]
    assert (cpu.made, cpu.n) == ([], 1)


def test_a_run_goes_as_with_that_number(tmp_path: Any, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture) -> None:
    net = NET.replace("num_output: 3", 'num_output: 3 weight_filler { type: "gaussian" std: 1 }')
    write_solver(tmp_path, net, test_iter=None, test_interval=None, max_iter=3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr("scaffe.training.ranks.fastest", lambda seconds: min(seconds[0]))
    found = []
    for threads in ("1", "auto"):
        assert main(["train", "-solver", "solver.prototxt", "-threads", threads]) == 0
        log = capsys.readouterr().err
        found.append(losses(log))
    assert "Threads: 1 a rank (forward and backward, 2: " in log
    assert found[0] == found[1] and len(set(found[0].values())) == 3
