"""On which GPU which thread of a rank is at work: on the rank's own, with a context, and on no other."""

import time

import numpy as np
import pytest
from conftest import IS_REAL

from scaffe.collectives.runtime.mismatch import MismatchDetector
from scaffe.collectives.runtime.watch import TICK_SECONDS

pytestmark = pytest.mark.skipif(IS_REAL, reason="asks the pretend device for its contexts")
KINDS = ("ipc", "cards", "flags", "staged", "aware")


@pytest.mark.parametrize(("communicator", "kind"), [(kind, kind) for kind in KINDS], indirect=["communicator"])
def test_the_helper_works_on_this_ranks_gpu_alone(communicator, cp, kind):
    from tests.pretend import contexts

    number = communicator._ranks._device.number
    array = communicator.alloc(1000, memory="device")
    communicator.allreduce(array), communicator.iallreduce(array).wait(120)
    assert (number, "collectives-progress") in contexts.made
    assert {found for found in contexts.made if found[0] != number} == set()


@pytest.mark.parametrize("communicator", ["aware"], indirect=True)
def test_every_thread_that_calls_mpi_has_the_gpu_current(communicator, last, cp, monkeypatch):
    from tests.pretend import contexts

    seen, check = [], MismatchDetector.check

    def noted(self):
        seen.append((contexts.is_bound(), contexts.current_device()))
        check(self)

    monkeypatch.setattr(MismatchDetector, "check", noted)
    array = cp.zeros(1000, np.float32)
    communicator.barrier()
    if last:
        time.sleep(3 * TICK_SECONDS)  # the others' watch looks around meanwhile
    communicator.iallreduce(array).wait(120)
    communicator.barrier()
    assert seen or last or communicator.n_ranks == 1
    assert set(seen) <= {(True, communicator._ranks._device.number)}
