"""How often a gateway polls: rarely while nothing happens, as often as chunks come while rows are under way."""

import pytest

from scaffe.collectives.server.nodes.links import CHUNKS_A_POLL, LONGEST_SECONDS, SHORTEST_SECONDS, PollingInterval


def test_the_longer_nothing_happens_the_less_it_polls():
    polling = PollingInterval()
    assert polling.interval(1, False, 5.0) == SHORTEST_SECONDS
    assert polling.interval(0, False, 5.016) == pytest.approx(0.001)
    assert polling.interval(0, False, 9.0) == LONGEST_SECONDS
    assert polling.interval(2, False, 9.5) == SHORTEST_SECONDS


@pytest.mark.parametrize("chunks_a_second", [300, 2000, 4000, 20_000, 1_000_000])
def test_rows_under_way_are_polled_as_often_as_chunks_come(chunks_a_second):
    polling, now, n_done, interval = PollingInterval(), 0.0, 1, 0.0
    for _ in range(60):
        interval = polling.interval(n_done, True, now)
        now += interval
        n_done = round(chunks_a_second * interval)
    wanted = min(max(CHUNKS_A_POLL / chunks_a_second, SHORTEST_SECONDS), LONGEST_SECONDS)
    assert wanted / 2 <= interval <= 2 * wanted
