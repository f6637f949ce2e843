"""What the log says of asynchrony, and what options mean for the server."""

import math

import pytest

from scaffe.training.parameter_server.options import SLACK, Consistency, StalenessStatistics, summary


def test_the_summary_counts_over_all_workers():
    first = StalenessStatistics(computing=2, waiting=1, elapsed=4)
    second = StalenessStatistics(computing=3, waiting=2, elapsed=5)
    for staleness in (0, 3, 1):
        first.pulled(staleness)
    second.pulled(2)
    for figures, n_pushes in ((first, 5), (second, 15)):
        for _ in range(n_pushes):
            figures.pushed()
    stale, server, shards = summary([first, second], [(100, 55), (5, 10)])
    assert stale == "Staleness: 1.50 clocks on average, 3 at most; 33.3% of the workers' time waiting"
    assert server == ("Server: 1 pulls and 4 pushes a second; slowest worker 1, computing for 3.0 s, the mean is 2.5 s")
    assert shards == "Shards, pulls and pushes a second: 20 and 11, 1 and 2"
    assert summary([StalenessStatistics()], [])[0].startswith("Staleness: 0.00 clocks")


def test_one_update_sums_all_workers_with_slack_0_alone():
    assert [Consistency(slack, 0).n_summed(4) for slack in (0, 1, math.inf)] == [4, 1, 1]


def test_slacks():
    assert [SLACK(text) for text in ("0", "12", "inf")] == [0, 12, math.inf]
    for text in ("-1", "1.5", "nan", "many", ""):
        with pytest.raises(ValueError, match="must be inf or a whole number from 0 to"):
            SLACK(text)
