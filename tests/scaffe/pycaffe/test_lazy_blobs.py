"""Nothing of a folded pass shows: blobs, diffs and parameters are those of layers that run one after another."""

import pytest

from tests.scaffe.pycaffe.random_calls import Calls


@pytest.mark.parametrize("part", range(6))
def test_random_calls(part, tmp_path):
    for seed in range(part * 50, part * 50 + 50):
        (tmp_path / str(seed)).mkdir()
        Calls(seed, tmp_path / str(seed)).run()
