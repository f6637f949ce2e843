"""The percentage of a collective that hides behind compute, on a clock of the test's own."""

import numpy as np
import pytest

from scaffe.collectives.bench import overlap

PURE = 10.0


class World:
    """A collective of PURE seconds, of which `hidden` goes on while the caller computes."""

    def __init__(self, hidden: float, drift: float = 1.0) -> None:
        self.now, self.speed, self.hidden, self.drift = 0.0, 1e-3, hidden, drift

    def work(self, values, n_rounds) -> None:
        self.now += n_rounds * self.speed

    def start(self) -> "World":
        self.started, self.exposed = self.now, PURE * (1 - self.hidden)
        return self

    def wait(self) -> None:
        self.now = max(self.now, self.started + PURE - self.exposed) + self.exposed

    def time_call(self, communicator, call, n_warm, n_timed) -> np.ndarray:
        seconds = []
        for _ in range(n_warm + n_timed):
            begun = self.now
            call()
            seconds.append(self.now - begun)
            self.speed *= self.drift
        return np.array(seconds[n_warm:])


@pytest.mark.parametrize("hidden", [0.0, 0.4, 0.95, 1.0])
def test_the_hidden_share_is_found_on_a_machine_of_any_speed(monkeypatch, hidden):
    for drift in (1.0, 0.99, 1.02):
        world = World(hidden, drift)
        monkeypatch.setattr(overlap, "time_call", world.time_call)
        monkeypatch.setattr(overlap, "_work", world.work)
        figures = overlap.measure_overlap(None, world.start, 1, 9)
        assert figures["pure"] == pytest.approx(PURE)
        assert figures["compute"] == pytest.approx(PURE, rel=0.1)  # as much compute as the collective takes
        assert figures["overlap"] == pytest.approx(100 * hidden, abs=0.1 if drift == 1 else 4)
