"""The same by messages through host memory: apart, so that on a card both kinds have their time, and run at once."""

import pytest

from tests.scaffe.device.test_strategies import check, needs_device

pytestmark = [pytest.mark.mpi_job, pytest.mark.thorough, needs_device]


@pytest.mark.parametrize("part", ["each", "more", "masks"])
def test_two_ranks_on_a_device_train_as_on_the_cpu_by_staged_messages(part):
    check([part], SCAFFE_CUDA_IPC="0")
