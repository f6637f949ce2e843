"""On which GPU which thread of a rank is at work: on the rank's own, with a context, and on no other."""

import time
from pathlib import Path

import numpy as np
import pytest
from conftest import IS_REAL

from scaffe.collectives.runtime.mismatch import MismatchDetector

pytestmark = pytest.mark.skipif(IS_REAL, reason="asks the pretend device for its contexts")
KINDS = ("ipc", "cards", "flags", "staged", "aware")


@pytest.mark.parametrize(("communicator", "kind"), [(kind, kind) for kind in KINDS], indirect=["communicator"])
def test_the_helper_works_on_this_ranks_gpu_alone(communicator, cp, kind):
    from tests.pretend import contexts

    number = communicator._ranks.on_device.device.number
    array = communicator.alloc(1000, memory="device")
    communicator.allreduce(array), communicator.iallreduce(array).wait(120)
    assert (number, "collectives-progress") in contexts.made
    assert {found for found in contexts.made.copy() if found[0] != number} == set()


@pytest.mark.parametrize("communicator", ["aware"], indirect=True)
def test_every_thread_that_calls_mpi_has_the_gpu_current(communicator, last, cp, monkeypatch, tmp_path):
    from tests.pretend import contexts

    seen, check, folder = [], MismatchDetector.check, Path(communicator.allgather_objects(str(tmp_path))[0])

    def noted(self):
        seen.append((contexts.is_bound(), contexts.current_device()))
        (folder / str(communicator.rank)).touch()
        check(self)

    monkeypatch.setattr(MismatchDetector, "check", noted)
    array = cp.zeros(1000, np.float32)
    communicator.barrier()
    until = time.monotonic() + 60
    while last and len(list(folder.iterdir())) < communicator.n_ranks - 1 and time.monotonic() < until:
        time.sleep(0.01)  # until the watch of each of the others has looked around
    communicator.iallreduce(array).wait(120)
    communicator.barrier()
    assert seen or last or communicator.n_ranks == 1
    assert set(seen) <= {(True, communicator._ranks.on_device.device.number)}
