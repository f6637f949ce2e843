"""A few ranks are killed while jobs start; `python -m tests.soak.starts` kills many."""

import random

import pytest

from tests.soak.losses import make_home
from tests.soak.starts import WRONG, disturbed

pytestmark = [pytest.mark.mpi_job, pytest.mark.thorough]
LATEST_SECONDS, HANGS_AFTER_SECONDS = 1.5, 90


@pytest.mark.parametrize("mode", ["shrink", "server", "replace", "memory"])
def test_nothing_hangs_and_no_process_is_left(tmp_path, mode):
    chance = random.Random(mode)
    found = disturbed(make_home(tmp_path), mode, chance.randint(2, 4), chance, LATEST_SECONDS, HANGS_AFTER_SECONDS)
    assert found.what not in WRONG, found.said
